// orthogonalize_bench [models|products]: the time of the half precision products beside cuBLASLt's, and of the
// orthogonalization of two models' hidden matrices; both without an argument, about 15 and 3 seconds.
//
// Medians of CUDA graph replays on random data. TFLOP/s count the full product (2 m n k), also where half is computed.
// cuBLASLt: the fastest of its eight first suggestions, D = alpha A B + beta C without copies.

#include <cublasLt.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string_view>

#include "gluon/kernels/cuda/orthogonalize.h"
#include "tests/kernels/orthogonalize_reference.h"

namespace gluon::kernel_check {
namespace {

using namespace gluon::cuda;

cublasLtHandle_t lt;
cudaStream_t stream;

__global__ void fill_random(__half* half, float* single, int64_t size, float factor, uint64_t seed) {
  for (int64_t i = blockIdx.x * 256 + threadIdx.x; i < size; i += int64_t(gridDim.x) * 256) {
    uint64_t x = (i + 1) * 0x9e3779b97f4a7c15ull + seed;
    float sum = 0;  // of four uniform numbers: near enough to normal
    for (int k = 0; k < 4; ++k) {
      x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9ull;
      x ^= x >> 27;
      sum += float(uint32_t(x)) * 0x1p-32f - 0.5f;
    }
    const float value = sum * 1.7320508f * factor;
    if (half != nullptr) half[i] = __float2half(value);
    if (single != nullptr) single[i] = value;
  }
}

constexpr int kInner = 4;

// Microseconds of one run(); median over `replays` replays of a graph of `inner` runs.
double time_graph(const std::function<void()>& run, int replays = 15, int inner = kInner) {
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  run();
  require(cudaStreamSynchronize(stream));
  require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  for (int i = 0; i < inner; ++i) run();
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
    if (i >= 3) times.push_back(1000.0 * milliseconds / inner);
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
    require(
        cublasLtMatrixLayoutSetAttribute(result, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)));
    require(cublasLtMatrixLayoutSetAttribute(result, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                             sizeof(stride)));
    return result;
  };
  const cublasLtMatrixLayout_t layout_a = layout(m, k), layout_b = transpose_b ? layout(n, k) : layout(k, n);
  const cublasLtMatrixLayout_t layout_c = layout(m, n);
  cublasLtMatmulPreference_t preference;
  const size_t workspace_bytes = size_t(64) << 20;
  static Array<char> workspace(static_cast<int64_t>(workspace_bytes));
  require(cublasLtMatmulPreferenceCreate(&preference));
  require(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                               &workspace_bytes, sizeof(workspace_bytes)));
  cublasLtMatmulHeuristicResult_t found[8];
  int count_found = 0;
  require(cublasLtMatmulAlgoGetHeuristic(lt, operation, layout_b, layout_a, layout_c, layout_c, preference, 8,
                                         found, &count_found));
  const float alpha = 0.05f, beta = d == nullptr ? 0.0f : 0.5f;
  double best = INFINITY;
  for (int i = 0; i < count_found; ++i) {
    const auto run = [&] {
      require(cublasLtMatmul(lt, operation, &alpha, b, layout_b, a, layout_a, &beta, d == nullptr ? c : d,
                             layout_c, c, layout_c, &found[i].algo, workspace.data(), workspace_bytes,
                             stream));
    };
    best = std::min(best, time_graph(run, 5));
  }
  return best;
}

void bench_products(int count, int m, int n) {
  const int64_t size = int64_t(count) * m * n, square = int64_t(count) * m * m;
  Array<__half> x(size), y(size), r(square), p(square);
  Array<int> progress(count + 1);
  fill_random<<<1024, 256, 0, stream>>>(x.data(), nullptr, size, 1 / std::sqrt(float(n)), 1);
  const HalfStack xs{x.data(), n, int64_t(m) * n}, ys{y.data(), n, int64_t(m) * n};
  const HalfStack rs{r.data(), m, int64_t(m) * m}, ps{p.data(), m, int64_t(m) * m};
  const auto time_product = [&](Product product, bool transposed = false) {
    product.count = count;
    product.rows = transposed ? n : m;
    product.columns = transposed ? m : n;
    return time_graph([&] { require(launch_products(&product, 1, progress.data(), stream)); });
  };
  const auto line = [&](const char* what, double flops, double us, double lt_us) {
    std::printf("%-16s %3d x %4d x %4d  %9.1f us %5.0f TFLOP/s | cuBLASLt %9.1f us %5.0f | %.2fx\n", what,
                count, m, n, us, flops / us * 1e-6, lt_us, flops / lt_us * 1e-6, lt_us / us);
  };
  const double small = 2.0 * square * m, large = 2.0 * square * n;
  // The first call leaves R for the next ones.
  const double gram = time_product({.kind = ProductKind::kRowGram, .a = xs, .c = rs});
  line("X X^T", large, gram, time_cublaslt(count, m, m, n, x.data(), x.data(), true, nullptr, r.data()));
  const double step = time_product(
      {.kind = ProductKind::kSymmetric, .a = rs, .b = rs, .c = ps, .d = rs, .alpha = 0.5f, .beta = -1.5f});
  line("b R + c R R", small, step,
       time_cublaslt(count, m, m, m, r.data(), r.data(), false, r.data(), p.data()));
  const double left =
      time_product({.kind = ProductKind::kLeft, .a = ps, .b = xs, .c = ys, .d = xs, .beta = 2});
  line("a X + P X", large, left,
       time_cublaslt(count, m, n, m, p.data(), x.data(), false, x.data(), y.data()));
  if (n == m) return;
  // The same memory as tall matrices (n, m).
  const HalfStack xt{x.data(), m, int64_t(m) * n}, yt{y.data(), m, int64_t(m) * n};
  line("X^T X", large, time_product({.kind = ProductKind::kColumnGram, .a = xt, .c = rs}, true), NAN);
  line("a X + X P", large,
       time_product({.kind = ProductKind::kRight, .a = xt, .b = ps, .c = yt, .d = xt, .beta = 2}, true), NAN);
}

struct Shape {
  int count, rows, columns;
};

void bench_orthogonalizer(const char* name, const std::vector<Shape>& shapes, OrthogonalizeOptions::Form form,
                          ElementType type, int steps = 4) {
  const auto rows = polar_express_coefficients({.steps = steps, .lower = steps <= 4 ? 5e-3 : 1e-3});
  const OrthogonalizeOptions options{.coefficients = rows.data(), .steps = steps, .form = form};
  std::vector<std::unique_ptr<Array<__half>>> halves;
  std::vector<std::unique_ptr<Array<float>>> floats;
  std::vector<OrthogonalizeStack> stacks;
  for (const Shape& shape : shapes) {
    const int64_t matrix = int64_t(shape.rows) * shape.columns, size = matrix * shape.count;
    const bool half = type == ElementType::kFloat16;
    halves.push_back(std::make_unique<Array<__half>>(half ? size : 8));
    floats.push_back(std::make_unique<Array<float>>(half ? 8 : size));
    halves.push_back(std::make_unique<Array<__half>>(size));
    __half* input = halves[halves.size() - 2]->data();
    fill_random<<<1024, 256, 0, stream>>>(half ? input : nullptr, half ? nullptr : floats.back()->data(),
                                          size, 1 / std::sqrt(float(std::max(shape.rows, shape.columns))), 7);
    stacks.push_back({shape.count,
                      shape.rows,
                      shape.columns,
                      half ? static_cast<void*>(input) : floats.back()->data(),
                      type,
                      shape.columns,
                      matrix,
                      {halves.back()->data(), shape.columns, matrix}});
  }
  const int count = int(stacks.size());
  const size_t bytes = orthogonalize_workspace(stacks.data(), count, options);
  Array<char> workspace(static_cast<int64_t>(bytes));
  const double us = time_graph(
      [&] { require(orthogonalize(stacks.data(), count, options, workspace.data(), bytes, stream)); }, 15, 1);
  double flops = 0;
  for (const Shape& shape : shapes) {
    const double k = std::min(shape.rows, shape.columns), l = std::max(shape.rows, shape.columns);
    const bool gram = orthogonalize_in_gram_form(shape.rows, shape.columns, options);
    const int segments = gram ? (steps + 1) / 2 : steps;
    flops += shape.count * (segments * 3 * k * k * l + k * k * k * (steps + (gram ? 3 * (steps / 2) : 0)));
  }
  std::printf("%-32s %-6s %s  %9.3f ms  %5.0f TFLOP/s (half counted)  workspace %.2f GiB\n", name,
              form == OrthogonalizeOptions::Form::kDirect ? "direct" : "auto",
              type == ElementType::kFloat16 ? "fp16" : "fp32", us / 1000, flops / us * 1e-6,
              bytes / 1073741824.0);
}

void bench_models() {
  using Form = OrthogonalizeOptions::Form;
  const std::vector<Shape> small{{48, 768, 768}, {12, 3072, 768}, {12, 768, 3072}};
  const std::vector<Shape> large{{96, 2048, 2048}, {24, 8192, 2048}, {24, 2048, 8192}};
  for (const ElementType type : {ElementType::kFloat16, ElementType::kFloat32}) {
    bench_orthogonalizer("gpt124m, 4 steps", small, Form::kAuto, type);
  }
  bench_orthogonalizer("gpt124m, 4 steps", small, Form::kDirect, ElementType::kFloat16);
  bench_orthogonalizer("  48 of 768 x 768", {small[0]}, Form::kAuto, ElementType::kFloat16);
  bench_orthogonalizer("  12 of 3072 x 768", {small[1]}, Form::kAuto, ElementType::kFloat16);
  bench_orthogonalizer("  12 of 768 x 3072", {small[2]}, Form::kAuto, ElementType::kFloat16);
  bench_orthogonalizer("gpt1b3, 4 steps", large, Form::kAuto, ElementType::kFloat16);
  bench_orthogonalizer("  96 of 2048 x 2048", {large[0]}, Form::kAuto, ElementType::kFloat16);
  bench_orthogonalizer("  24 + 24 of 2048 x 8192", {large[1], large[2]}, Form::kAuto, ElementType::kFloat16);
}

}  // namespace
}  // namespace gluon::kernel_check

int main(int count, char** arguments) {
  using namespace gluon::kernel_check;
  const std::string_view part = count > 1 ? arguments[1] : "";
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  require(cudaStreamCreate(&stream));
  require(cublasLtCreate(&lt));
  if (part != "products") bench_models();
  if (part == "models") return 0;
  bench_products(48, 768, 768);
  bench_products(24, 768, 3072);
  bench_products(96, 2048, 2048);
  bench_products(48, 2048, 8192);
  return 0;
}
