// Checks the half precision products and the orthogonalizer against float64, as a program of its own (no test
// framework, no LibTorch; needs a Hopper GPU). Exit status 1 if anything is off.
//
// Products: relative error below 6e-4 (rounding the result to fp16 gives 2.1e-4). Orthogonalizer: close to the same
// polynomials in float64, and no farther from the exact polar factor than five steps of Polar Express in bf16.

#include <algorithm>
#include <cstring>
#include <memory>

#include "gluon/kernels/cuda/orthogonalize.h"
#include "tests/kernels/orthogonalize_support.cuh"

namespace {

using namespace gluon;
using namespace gluon::cuda;
using support::Buffer;
using Form = OrthogonalizeOptions::Form;

cublasHandle_t handle;
int failures = 0;
bool small =
    false;  // for compute-sanitizer: small matrices, and nothing beside bf16, whose cuBLAS it does not bear

void expect(bool condition, const char* what) {
  if (condition) return;
  std::printf("  FAILED: %s\n", what);
  ++failures;
}

// A random half precision stack with some room after each row, filled with NaN there, and its entries in float64.
struct Stack {
  int count, m, n;
  int64_t stride;
  Buffer<__half> half;
  Buffer<double> dense;

  Stack(int count, int m, int n, unsigned seed, bool symmetric, int64_t room = 8)
      : count(count),
        m(m),
        n(n),
        stride((n + 7) / 8 * 8 + room),
        half(count * m * stride),
        dense(int64_t(count) * m * n) {
    const std::vector<double> values = support::gaussian(int64_t(count) * m * n, seed);
    std::vector<__half> entries(half.size(), __float2half(NAN));
    std::vector<double> rounded(values.size());
    for (int c = 0; c < count; ++c) {
      for (int i = 0; i < m; ++i) {
        for (int j = 0; j < n; ++j) {
          const int64_t own = (int64_t(c) * m + i) * n + j, other = (int64_t(c) * m + j) * n + i;
          const __half h = __float2half(float(values[symmetric && j > i ? other : own]));
          entries[(int64_t(c) * m + i) * stride + j] = h;
          rounded[own] = __half2float(h);
        }
      }
    }
    half.upload(entries);
    dense.upload(rounded);
  }
  HalfStack view() const { return {half.get(), stride, stride * m}; }
};

const char* name_of(ProductKind kind) {
  const char* names[] = {"row gram", "column gram", "symmetric", "left", "right"};
  return names[int(kind)];
}

// C = alpha A B, + beta D (one addend), + a multiple of I where C is symmetric (two). kSymmetric is checked with B = A,
// as the same and (two addends) another buffer.
void check_product(ProductKind kind, int count, int m, int n, int addends) {
  const bool row = kind == ProductKind::kRowGram, column = kind == ProductKind::kColumnGram;
  const bool square = kind == ProductKind::kSymmetric;
  const int rows = square || row ? m : column ? n : m, columns = square || row ? m : n;
  const bool symmetric = row || column || square;
  Stack a = row || column || kind == ProductKind::kRight ? Stack(count, m, n, 1, false)
                                                         : Stack(count, m, m, 2, true);
  Stack b = kind == ProductKind::kLeft    ? Stack(count, m, n, 3, false)
            : kind == ProductKind::kRight ? Stack(count, n, n, 4, true)
                                          : Stack(1, 8, 8, 5, false);
  Stack copy(square ? count : 1, square ? m : 8, square ? m : 8, 2, true);
  Stack c(count, rows, columns, 6, false), d(count, rows, columns, 7, symmetric);
  Buffer<float> squares(int64_t(count) * product_partials(rows));
  squares.fill(0xff);

  const int depth = row ? n : column ? m : kind == ProductKind::kRight ? n : m;
  Product product;
  product.kind = kind;
  product.count = count;
  product.rows = m;
  product.columns = n;
  product.a = a.view();
  product.b = !square ? b.view() : addends == 2 ? copy.view() : a.view();
  product.c = c.view();
  product.alpha = float(1 / std::sqrt(double(depth)));
  if (addends > 0) product.d = d.view(), product.beta = -0.5f;
  if (addends > 1 && symmetric) product.identity = 2;
  const bool sums = (row || column) && product.identity == 0;
  if (sums) product.squares = squares.get();
  Buffer<int> progress(product_progress(&product, 1));
  c.half.fill(0xff);  // NaN everywhere: an entry that is not written fails
  CUDA_OK(launch_products(&product, 1, progress.get(), nullptr));
  const std::vector<__half> first = c.half.download();
  CUDA_OK(launch_products(&product, 1, progress.get(), nullptr));
  const std::vector<__half> second = c.half.download();

  Buffer<double> reference(int64_t(count) * rows * columns);
  const double* right = row || column || square ? a.dense.get() : b.dense.get();
  support::multiply(handle, count, rows, columns, depth, product.alpha, a.dense.get(), column, right, row, 0,
                    reference.get());
  std::vector<double> expected = reference.download();
  const std::vector<double> d_host = d.dense.download();
  for (size_t i = 0; i < expected.size(); ++i) expected[i] += product.beta * d_host[i];
  for (int64_t i = 0; i < int64_t(count) * rows; ++i)
    expected[i * columns + (symmetric ? i % rows : 0)] += product.identity;
  const std::vector<double> result = support::gather(first, count, rows, columns, c.stride);
  const double error = support::relative_error(result, expected);

  bool padding = true, mirrored = true;
  for (int64_t i = 0; i < int64_t(count) * rows; ++i) {
    for (int64_t j = columns; j < c.stride; ++j) {
      const unsigned short bits = __half_as_ushort(first[i * c.stride + j]);
      padding &= bits == 0xffff || (bits == 0 && j < (columns + 7) / 8 * 8);
    }
  }
  for (int64_t i = 0; symmetric && i < rows; ++i) {
    for (int64_t j = 0; j < i / 128 * 128; ++j)
      mirrored &= result[i * columns + j] == result[j * columns + i];
  }
  double square_error = 0;
  if (sums) {
    const std::vector<float> partial = squares.download();
    for (int i = 0; i < count; ++i) {
      double sum = 0, wanted = 0;
      const int64_t partials = product_partials(rows), size = int64_t(rows) * rows;
      for (int64_t j = 0; j < partials; ++j) sum += partial[i * partials + j];
      for (int64_t j = 0; j < size; ++j) wanted += expected[i * size + j] * expected[i * size + j];
      square_error = std::max(square_error, std::abs(sum / wanted - 1));
    }
  }
  std::printf("%-12s %2d x %4d x %4d  addends %d  error %.1e  squares %.0e\n", name_of(kind), count, m, n,
              addends, error, square_error);
  expect(error < 6e-4, "product is close to float64");
  expect(padding, "nothing is written beside the matrix");
  expect(mirrored, "both triangles hold the same bits");
  expect(std::memcmp(first.data(), second.data(), first.size() * sizeof(__half)) == 0,
         "two runs give the same bits");
  expect(!(square_error > 1e-4), "partial sums add up to |C|^2");
}

struct Outcome {
  std::vector<double> result;
  bool repeats;
};

Outcome run_ours(const std::vector<double>& x, int count, int m, int n, const std::vector<Quintic>& rows,
                 OrthogonalizeOptions::Form form, bool half_input) {
  const int64_t stride = (n + 7) / 8 * 8;
  Buffer<__half> output(count * m * stride), input(count * m * stride);
  std::vector<float> single(x.begin(), x.end());
  Buffer<float> device(single);
  OrthogonalizeStack stack{count,
                           m,
                           n,
                           device.get(),
                           ElementType::kFloat32,
                           n,
                           int64_t(m) * n,
                           {output.get(), stride, stride * m}};
  if (half_input) {
    const std::vector<double> scaled =
        support::scaled_by_frobenius(x, count, orthogonalize_input_length(m, n));
    std::vector<__half> rounded(input.size());
    for (int64_t i = 0; i < int64_t(count) * m; ++i) {
      for (int j = 0; j < n; ++j) rounded[i * stride + j] = __float2half(float(scaled[i * n + j]));
    }
    input.upload(rounded);
    stack.input = input.get();
    stack.input_type = ElementType::kFloat16;
    stack.row_stride = stride;
    stack.matrix_stride = stride * m;
  }
  OrthogonalizeOptions options{.coefficients = rows.data(), .steps = int(rows.size()), .form = form};
  const size_t bytes = orthogonalize_workspace(&stack, 1, options);
  Buffer<char> workspace(bytes);
  std::vector<__half> results[2];
  for (auto& result : results) {
    workspace.fill(0xff);
    output.fill(0xff);
    CUDA_OK(orthogonalize(&stack, 1, options, workspace.get(), bytes, nullptr));
    result = output.download();
  }
  expect(orthogonalize(&stack, 1, options, workspace.get(), bytes - 1, nullptr) == cudaErrorInvalidValue,
         "a small workspace is refused");
  return {support::gather(results[0], count, m, n, stride),
          std::memcmp(results[0].data(), results[1].data(), results[0].size() * sizeof(__half)) == 0};
}

// power: singular values about i^-power; scale multiplies the input.
void check_orthogonalizer(int count, int m, int n, double power, double scale,
                          OrthogonalizeOptions::Form form, bool half_input, int steps = 4) {
  std::vector<double> x = support::gaussian(int64_t(count) * m * n, unsigned(m + n));
  for (int64_t i = 0; i < int64_t(count) * m * n; ++i) {
    const int64_t index = m <= n ? i / n % m : i % n;
    x[i] = float(x[i] * std::pow(double(index + 1), -power) * scale);
  }
  const auto rows = polar_express_coefficients({.steps = steps, .lower = steps <= 4 ? 5e-3 : 1e-3});
  const Outcome ours = run_ours(x, count, m, n, rows, form, half_input);
  const double rounding = support::distance(
      ours.result, support::same_polynomials(handle, x, count, m, n, rows), count, std::min(m, n));
  const bool gram = orthogonalize_in_gram_form(m, n, {.steps = steps, .form = form});
  std::printf("%2d x %4d x %4d  power %.1f  scale %.0e  %-6s %s %d steps | float64 %.1e\n", count, m, n,
              power, scale, gram ? "gram" : "direct", half_input ? "fp16" : "fp32", steps, rounding);
  expect(ours.repeats, "two runs give the same bits");
  expect(rounding < 4e-3, "close to the same polynomials in float64");
  if (small) return;
  const std::vector<double> exact = support::exact_polar(handle, x, count, m, n),
                            bf16 = support::bf16_polar_express(handle, x, count, m, n);
  const double ours_polar = support::distance(ours.result, exact, count, std::min(m, n)),
               bf16_polar = support::distance(bf16, exact, count, std::min(m, n));
  const double ours_orthogonal = support::orthogonality_error(handle, ours.result, count, m, n);
  const double bf16_orthogonal = support::orthogonality_error(handle, bf16, count, m, n);
  std::printf("%19spolar %.4f, bf16 %.4f | |xx-1| %.4f, bf16 %.4f\n", "", ours_polar, bf16_polar,
              ours_orthogonal, bf16_orthogonal);
  // With as many steps as bf16's the polynomials are the same and only the start differs.
  const double slack = steps <= 4 ? 1 : 1.1;
  if (power > 0 && steps <= 4) return;  // four steps leave small singular values behind, in any precision
  expect(ours_polar <= slack * bf16_polar, "as close to the polar factor as bf16 Polar Express");
  expect(ours_orthogonal <= slack * bf16_orthogonal, "as orthogonal as bf16 Polar Express");
}

// The model's shapes, and spectra like i^-power.
void check_large() {
  for (const bool half_input : {false, true}) {
    check_orthogonalizer(4, 768, 768, 0, 1, Form::kAuto, half_input);
    check_orthogonalizer(2, 768, 3072, 0, 1, Form::kAuto, half_input);
    check_orthogonalizer(2, 3072, 768, 0, 1, Form::kAuto, half_input);
  }
  for (const double power : {0.5, 1.0, 2.0}) {
    check_orthogonalizer(2, 768, 768, power, 1, Form::kAuto, false);
    check_orthogonalizer(2, 768, 3072, power, 1, Form::kAuto, false);
    check_orthogonalizer(2, 3072, 768, power, 1, Form::kDirect, false);
    check_orthogonalizer(2, 768, 768, power, 1, Form::kAuto, false, 5);
    check_orthogonalizer(2, 3072, 768, power, 1, Form::kAuto, false, 5);
  }
  check_orthogonalizer(2, 768, 768, 1, 1, Form::kGram, false);
  check_orthogonalizer(1, 2048, 2048, 0, 1, Form::kAuto, false);
  check_orthogonalizer(1, 1024, 4096, 1, 1, Form::kAuto, false);
}

// Stacks of different shapes in one call, replayed as a graph: the same bits as one call each.
void check_together() {
  const int shapes[][3] = {{9, 384, 384}, {4, 640, 136}, {5, 136, 640}, {3, 264, 256}};
  const auto rows = polar_express_coefficients({.steps = 4, .lower = 5e-3});
  const OrthogonalizeOptions options{.coefficients = rows.data(), .steps = 4};
  std::vector<std::unique_ptr<Buffer<float>>> inputs;
  std::vector<std::unique_ptr<Buffer<__half>>> outputs;
  std::vector<OrthogonalizeStack> stacks;
  for (const auto& [count, m, n] : shapes) {
    const std::vector<double> x = support::gaussian(int64_t(count) * m * n, unsigned(m));
    inputs.push_back(std::make_unique<Buffer<float>>(std::vector<float>(x.begin(), x.end())));
    outputs.push_back(std::make_unique<Buffer<__half>>(int64_t(count) * m * n));
    stacks.push_back({count,
                      m,
                      n,
                      inputs.back()->get(),
                      ElementType::kFloat32,
                      n,
                      int64_t(m) * n,
                      {outputs.back()->get(), n, int64_t(m) * n}});
  }
  const int count = int(stacks.size());
  Buffer<char> workspace(int64_t(orthogonalize_workspace(stacks.data(), count, options)));
  std::vector<std::vector<__half>> alone;
  for (int i = 0; i < count; ++i) {
    CUDA_OK(orthogonalize(&stacks[i], 1, options, workspace.get(), workspace.size(), nullptr));
    alone.push_back(outputs[i]->download());
    outputs[i]->fill(0xff);
  }
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  CUDA_OK(cudaStreamCreate(&stream));
  CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  CUDA_OK(orthogonalize(stacks.data(), count, options, workspace.get(), workspace.size(), stream));
  CUDA_OK(cudaStreamEndCapture(stream, &graph));
  CUDA_OK(cudaGraphInstantiate(&executable, graph, 0));
  for (int replay = 0; replay < 20; ++replay) {
    CUDA_OK(cudaGraphLaunch(executable, stream));
    bool same = true;
    for (int i = 0; i < count; ++i) {
      const std::vector<__half> together = outputs[i]->download();
      same &= std::memcmp(alone[i].data(), together.data(), together.size() * sizeof(__half)) == 0;
      outputs[i]->fill(0xff);
    }
    expect(same, "stacks together, replayed, give the bits of each alone");
  }
  std::printf("several stacks in one captured call checked\n");
}

void check_zero() {
  const auto rows = polar_express_coefficients({.steps = 4, .lower = 5e-3});
  for (const auto form : {OrthogonalizeOptions::Form::kDirect, OrthogonalizeOptions::Form::kGram}) {
    std::vector<double> x = support::gaussian(2 * 136 * 264, 1);
    std::fill(x.begin(), x.begin() + 136 * 264, 0.0);
    const Outcome ours = run_ours(x, 2, 136, 264, rows, form, false);
    bool zero = true, other = false;
    for (int i = 0; i < 136 * 264; ++i) zero &= ours.result[i] == 0, other |= ours.result[136 * 264 + i] != 0;
    expect(zero && other, "zero gives zero, its neighbour does not");
  }
  std::printf("zero matrices checked\n");
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("orthogonalize_check: no CUDA device, nothing was checked\n");
    return 77;
  }
  small = argc > 1 && std::strcmp(argv[1], "small") == 0;
  CUBLAS_OK(cublasCreate(&handle));
  using enum ProductKind;
  for (const ProductKind kind : {kRowGram, kColumnGram, kSymmetric, kLeft, kRight}) {
    check_product(kind, 3, 128, 64, 0);
    if (!small) check_product(kind, 2, 768, 768, 1);
    check_product(kind, 1, 8, 24, 1);
    check_product(kind, 3, 100, 37, 2);
    check_product(kind, 2, 520, 264, 2);
    check_product(kind, 1, 1, 5, 1);
    if (!small) check_product(kind, 5, 264, 1000, kind == kSymmetric ? 2 : 1);
  }
  failures += check_targets();
  if (!small) check_large();
  check_orthogonalizer(3, 264, 104, 0, 1e-30, Form::kAuto, false);
  check_orthogonalizer(3, 104, 264, 0, 1e30, Form::kAuto, false);
  check_orthogonalizer(2, 99, 301, 0, 1e-20, Form::kGram, false);
  check_orthogonalizer(2, 301, 99, 0, 1e30, Form::kDirect, false, 5);
  check_orthogonalizer(2, 64, 216, 0, 1, Form::kAuto, false, 6);
  check_zero();
  check_together();
  std::printf(failures == 0 ? "all checks passed\n" : "%d checks FAILED\n", failures);
  return failures > 0;
}
