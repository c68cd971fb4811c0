// orthogonalize_bench: the time of the orthogonalizer's half precision products beside cuBLASLt's, about 15 seconds.
//
// Medians of CUDA graph replays on random data. TFLOP/s count the full product (2 m n k), also where half is computed.
// cuBLASLt: the fastest of its eight first suggestions, D = alpha A B + beta C without copies.

#include <cublasLt.h>

#include <algorithm>
#include <functional>

#include "gluon/kernels/cuda/symmetric_product.h"
#include "tests/kernels/orthogonalize_reference.h"

namespace gluon::kernel_check {
namespace {

using namespace gluon::cuda;

cublasLtHandle_t lt;
cudaStream_t stream;

__global__ void fill_random(__half* data, int64_t size, float factor) {
  for (int64_t i = blockIdx.x * 256 + threadIdx.x; i < size; i += int64_t(gridDim.x) * 256) {
    uint64_t x = (i + 1) * 0x9e3779b97f4a7c15ull + 1;
    float sum = 0;  // of four uniform numbers, which is close to normal
    for (int k = 0; k < 4; ++k) {
      x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9ull;
      x ^= x >> 27;
      sum += float(uint32_t(x)) * 0x1p-32f - 0.5f;
    }
    data[i] = __float2half(sum * 1.7320508f * factor);
  }
}

// Microseconds of one run(): the median over `replays` replays of a graph of several runs.
double time_graph(const std::function<void()>& run, int replays = 15) {
  constexpr int kRuns = 4;
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  run();
  require(cudaStreamSynchronize(stream));
  require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  for (int i = 0; i < kRuns; ++i) run();
  require(cudaStreamEndCapture(stream, &graph));
  require(cudaGraphInstantiate(&executable, graph, 0));
  cudaEvent_t begin, end;
  require(cudaEventCreate(&begin));
  require(cudaEventCreate(&end));
  std::vector<double> times;
  for (int i = 0; i < replays + 3; ++i) {
    require(cudaEventRecord(begin, stream));
    require(cudaGraphLaunch(executable, stream));
    require(cudaEventRecord(end, stream));
    require(cudaEventSynchronize(end));
    float milliseconds;
    require(cudaEventElapsedTime(&milliseconds, begin, end));
    if (i >= 3) times.push_back(1000.0 * milliseconds / kRuns);
  }
  require(cudaGraphExecDestroy(executable));
  require(cudaGraphDestroy(graph));
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// Row-major C (m, n) = A (m, k) op(B) + beta D, by the fastest algorithm.
double time_cublaslt(int count, int m, int n, int k, const __half* a, const __half* b, bool transpose_b,
                     const __half* d, __half* c) {
  cublasLtMatmulDesc_t operation;
  require(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const cublasOperation_t op = transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  require(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &op, sizeof(op)));
  const auto layout = [&](int rows, int columns) {  // of a row-major matrix, seen by columns
    cublasLtMatrixLayout_t result;
    const int64_t stride = int64_t(rows) * columns;
    require(cublasLtMatrixLayoutCreate(&result, CUDA_R_16F, columns, rows, columns));
    require(cublasLtMatrixLayoutSetAttribute(result, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)));
    require(
        cublasLtMatrixLayoutSetAttribute(result, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof(stride)));
    return result;
  };
  const cublasLtMatrixLayout_t layout_a = layout(m, k), layout_b = transpose_b ? layout(n, k) : layout(k, n);
  const cublasLtMatrixLayout_t layout_c = layout(m, n);
  cublasLtMatmulPreference_t preference;
  const size_t workspace_bytes = size_t(64) << 20;
  static Array<char> workspace(static_cast<int64_t>(workspace_bytes));
  require(cublasLtMatmulPreferenceCreate(&preference));
  require(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes,
                                               sizeof(workspace_bytes)));
  cublasLtMatmulHeuristicResult_t found[8];
  int count_found = 0;
  require(cublasLtMatmulAlgoGetHeuristic(lt, operation, layout_b, layout_a, layout_c, layout_c, preference, 8, found,
                                         &count_found));
  const float alpha = 0.05f, beta = d == nullptr ? 0.0f : 0.5f;
  double best = INFINITY;
  for (int i = 0; i < count_found; ++i) {
    const auto run = [&] {
      require(cublasLtMatmul(lt, operation, &alpha, b, layout_b, a, layout_a, &beta, d == nullptr ? c : d, layout_c, c,
                             layout_c, &found[i].algo, workspace.data(), workspace_bytes, stream));
    };
    best = std::min(best, time_graph(run, 5));
  }
  return best;
}

void bench_products(int count, int m, int n) {
  const int64_t size = int64_t(count) * m * n, square = int64_t(count) * m * m;
  Array<__half> x(size), y(size), r(square), p(square);
  Array<int> progress(count + 1);
  fill_random<<<1024, 256, 0, stream>>>(x.data(), size, 1 / std::sqrt(float(n)));
  const HalfStack xs{x.data(), n, int64_t(m) * n}, ys{y.data(), n, int64_t(m) * n};
  const HalfStack rs{r.data(), m, int64_t(m) * m}, ps{p.data(), m, int64_t(m) * m};
  const auto time_product = [&](Product product, bool transposed = false) {
    product.count = count;
    product.rows = transposed ? n : m;
    product.columns = transposed ? m : n;
    return time_graph([&] { require(launch_products(&product, 1, progress.data(), stream)); });
  };
  const auto line = [&](const char* what, double flops, double us, double lt_us) {
    std::printf("%-16s %3d x %4d x %4d  %9.1f us %5.0f TFLOP/s | cuBLASLt %9.1f us %5.0f | %.2fx\n", what, count, m, n,
                us, flops / us * 1e-6, lt_us, flops / lt_us * 1e-6, lt_us / us);
  };
  const double small = 2.0 * square * m, large = 2.0 * square * n;
  // The first call leaves R for the next ones.
  const double gram = time_product({.kind = ProductKind::kRowGram, .a = xs, .c = rs});
  line("X X^T", large, gram, time_cublaslt(count, m, m, n, x.data(), x.data(), true, nullptr, r.data()));
  const double step =
      time_product({.kind = ProductKind::kSymmetric, .a = rs, .b = rs, .c = ps, .d = rs, .alpha = 0.5f, .beta = -1.5f});
  line("b R + c R R", small, step, time_cublaslt(count, m, m, m, r.data(), r.data(), false, r.data(), p.data()));
  const double left = time_product({.kind = ProductKind::kLeft, .a = ps, .b = xs, .c = ys, .d = xs, .beta = 2});
  line("a X + P X", large, left, time_cublaslt(count, m, n, m, p.data(), x.data(), false, x.data(), y.data()));
  if (n == m) return;
  // The same memory as tall matrices (n, m).
  const HalfStack xt{x.data(), m, int64_t(m) * n}, yt{y.data(), m, int64_t(m) * n};
  line("X^T X", large, time_product({.kind = ProductKind::kColumnGram, .a = xt, .c = rs}, true), NAN);
  line("a X + X P", large,
       time_product({.kind = ProductKind::kRight, .a = xt, .b = ps, .c = yt, .d = xt, .beta = 2}, true), NAN);
}

}  // namespace
}  // namespace gluon::kernel_check

int main() {
  using namespace gluon::kernel_check;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  require(cudaStreamCreate(&stream));
  require(cublasLtCreate(&lt));
  bench_products(48, 768, 768);
  bench_products(24, 768, 3072);
  bench_products(96, 2048, 2048);
  bench_products(48, 2048, 8192);
  return 0;
}
