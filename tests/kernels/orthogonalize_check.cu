// orthogonalize_check [small]: the half precision products and the orthogonalizer against float64.
//
// Products: relative error below 6e-4 (rounding the result to fp16 gives 2.1e-4). Orthogonalizer: close to the same
// polynomials in float64, and no farther from the exact polar factor than five steps of Polar Express in bf16.

#include <algorithm>
#include <memory>

#include "gluon/kernels/cuda/orthogonalize.h"
#include "tests/kernels/kernel_check.h"
#include "tests/kernels/orthogonalize_reference.h"

namespace gluon::kernel_check {

void check_targets();  // orthogonalize_check_targets.cu

namespace {

using namespace gluon::cuda;
using Form = OrthogonalizeOptions::Form;

// For compute-sanitizer: small matrices, and no reference in bf16, whose cuBLAS kernels it cannot run.
bool small = false;

// A random half precision stack with some room after each row, filled with NaN there, and its entries in float64.
struct Stack {
  int count, m, n;
  int64_t stride;
  Array<__half> half;
  Array<double> dense;

  Stack(int count, int m, int n, unsigned seed, bool symmetric, int64_t room = 8)
      : count(count),
        m(m),
        n(n),
        stride((n + 7) / 8 * 8 + room),
        half(count * m * stride),
        dense(int64_t(count) * m * n) {
    const std::vector<double> values = gaussian(int64_t(count) * m * n, seed);
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
    half.set(entries);
    dense.set(rounded);
  }
  HalfStack view() const { return {half.data(), stride, stride * m}; }
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
  Stack a = row || column || kind == ProductKind::kRight ? Stack(count, m, n, 1, false) : Stack(count, m, m, 2, true);
  Stack b = kind == ProductKind::kLeft    ? Stack(count, m, n, 3, false)
            : kind == ProductKind::kRight ? Stack(count, n, n, 4, true)
                                          : Stack(1, 8, 8, 5, false);
  Stack copy(square ? count : 1, square ? m : 8, square ? m : 8, 2, true);
  Stack c(count, rows, columns, 6, false), d(count, rows, columns, 7, symmetric);
  Array<float> squares(int64_t(count) * product_partials(rows));
  squares.poison();

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
  if (sums) product.squares = squares.data();
  Array<int> progress(product_progress(&product, 1));
  c.half.poison();  // NaN everywhere: an entry that is not written fails
  require(launch_products(&product, 1, progress.data(), nullptr));
  const std::vector<__half> first = c.half.get();
  require(launch_products(&product, 1, progress.data(), nullptr));
  const std::vector<__half> second = c.half.get();

  Array<double> reference(int64_t(count) * rows * columns);
  const double* right = row || column || square ? a.dense.data() : b.dense.data();
  multiply(count, rows, columns, depth, product.alpha, a.dense.data(), column, right, row, 0, reference.data());
  std::vector<double> expected = reference.get();
  const std::vector<double> d_host = d.dense.get();
  for (size_t i = 0; i < expected.size(); ++i) expected[i] += product.beta * d_host[i];
  for (int64_t i = 0; i < int64_t(count) * rows; ++i)
    expected[i * columns + (symmetric ? i % rows : 0)] += product.identity;
  const std::vector<double> result = gather(first, count, rows, columns, c.stride);
  const double error = relative_error(result, expected);

  bool padding = true, mirrored = true;
  for (int64_t i = 0; i < int64_t(count) * rows; ++i) {
    for (int64_t j = columns; j < c.stride; ++j) {
      const unsigned short bits = __half_as_ushort(first[i * c.stride + j]);
      padding &= bits == 0xffff || (bits == 0 && j < (columns + 7) / 8 * 8);
    }
  }
  for (int64_t i = 0; symmetric && i < rows; ++i) {
    for (int64_t j = 0; j < i / 128 * 128; ++j) mirrored &= result[i * columns + j] == result[j * columns + i];
  }
  double square_error = 0;
  if (sums) {
    const std::vector<float> partial = squares.get();
    for (int i = 0; i < count; ++i) {
      double sum = 0, wanted = 0;
      const int64_t partials = product_partials(rows), size = int64_t(rows) * rows;
      for (int64_t j = 0; j < partials; ++j) sum += partial[i * partials + j];
      for (int64_t j = 0; j < size; ++j) wanted += expected[i * size + j] * expected[i * size + j];
      square_error = std::max(square_error, std::abs(sum / wanted - 1));
    }
  }
  std::printf("%-12s %2d x %4d x %4d  addends %d  error %.1e  squares %.0e\n", name_of(kind), count, m, n, addends,
              error, square_error);
  expect(error < 6e-4, "product is close to float64");
  expect(padding, "nothing is written beside the matrix");
  expect(mirrored, "both triangles hold the same bits");
  expect(same_bits(first, second), "two runs give the same bits");
  expect(!(square_error > 1e-4), "partial sums add up to |C|^2");
}

std::vector<double> run_ours(const std::vector<double>& x, int count, int m, int n, const std::vector<Quintic>& rows,
                             OrthogonalizeOptions::Form form, bool half_input) {
  const int64_t stride = (n + 7) / 8 * 8;
  Array<__half> output(count * m * stride), input(count * m * stride);
  std::vector<float> single(x.begin(), x.end());
  Array<float> device(single);
  OrthogonalizeStack stack{
      count, m, n, device.data(), ElementType::kFloat32, n, int64_t(m) * n, {output.data(), stride, stride * m}};
  if (half_input) {
    const std::vector<double> scaled = scaled_by_frobenius(x, count, orthogonalize_input_length(m, n));
    std::vector<__half> rounded(input.size());
    for (int64_t i = 0; i < int64_t(count) * m; ++i) {
      for (int j = 0; j < n; ++j) rounded[i * stride + j] = __float2half(float(scaled[i * n + j]));
    }
    input.set(rounded);
    stack.input = input.data();
    stack.input_type = ElementType::kFloat16;
    stack.row_stride = stride;
    stack.matrix_stride = stride * m;
  }
  OrthogonalizeOptions options{.coefficients = rows.data(), .steps = int(rows.size()), .form = form};
  const size_t bytes = orthogonalize_workspace(&stack, 1, options);
  Array<char> workspace(bytes);
  std::vector<__half> results[2];
  for (auto& result : results) {
    workspace.poison();
    output.poison();
    require(orthogonalize(&stack, 1, options, workspace.data(), bytes, nullptr));
    result = output.get();
  }
  expect(same_bits(results[0], results[1]), "two runs give the same bits");
  expect(orthogonalize(&stack, 1, options, workspace.data(), bytes - 1, nullptr) == cudaErrorInvalidValue,
         "a small workspace is refused");
  return gather(results[0], count, m, n, stride);
}

// power: singular values about i^-power; scale multiplies the input.
void check_orthogonalizer(int count, int m, int n, double power, double scale, OrthogonalizeOptions::Form form,
                          bool half_input, int steps = 4) {
  std::vector<double> x = gaussian(int64_t(count) * m * n, unsigned(m + n));
  for (int64_t i = 0; i < int64_t(count) * m * n; ++i) {
    const int64_t index = m <= n ? i / n % m : i % n;
    x[i] = float(x[i] * std::pow(double(index + 1), -power) * scale);
  }
  const auto rows = polar_express_coefficients({.steps = steps, .lower = steps <= 4 ? 5e-3 : 1e-3});
  const std::vector<double> ours = run_ours(x, count, m, n, rows, form, half_input);
  const double rounding = distance(ours, same_polynomials(x, count, m, n, rows), count, std::min(m, n));
  const bool gram = orthogonalize_in_gram_form(m, n, {.steps = steps, .form = form});
  std::printf("%2d x %4d x %4d  power %.1f  scale %.0e  %-6s %s %d steps | float64 %.1e\n", count, m, n, power, scale,
              gram ? "gram" : "direct", half_input ? "fp16" : "fp32", steps, rounding);
  expect(rounding < 4e-3, "close to the same polynomials in float64");
  if (small) return;
  const std::vector<double> exact = exact_polar(x, count, m, n), in_bf16 = bf16_polar_express(x, count, m, n);
  const double ours_polar = distance(ours, exact, count, std::min(m, n)),
               bf16_polar = distance(in_bf16, exact, count, std::min(m, n));
  const double ours_orthogonal = orthogonality_error(ours, count, m, n);
  const double bf16_orthogonal = orthogonality_error(in_bf16, count, m, n);
  std::printf("%19spolar %.4f, bf16 %.4f | |xx-1| %.4f, bf16 %.4f\n", "", ours_polar, bf16_polar, ours_orthogonal,
              bf16_orthogonal);
  // With as many steps as bf16's the polynomials are the same and only the start differs.
  const double slack = steps <= 4 ? 1 : 1.1;
  if (power > 0 && steps <= 4) return;  // four steps leave small singular values behind, in any precision
  expect(ours_polar <= slack * bf16_polar, "as close to the polar factor as bf16 Polar Express");
  expect(ours_orthogonal <= slack * bf16_orthogonal, "as orthogonal as bf16 Polar Express");
}

// The shapes of a GPT-124M and larger, and spectra like i^-power.
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
  std::vector<std::unique_ptr<Array<float>>> inputs;
  std::vector<std::unique_ptr<Array<__half>>> outputs;
  std::vector<OrthogonalizeStack> stacks;
  for (const auto& [count, m, n] : shapes) {
    const std::vector<double> x = gaussian(int64_t(count) * m * n, unsigned(m));
    inputs.push_back(std::make_unique<Array<float>>(std::vector<float>(x.begin(), x.end())));
    outputs.push_back(std::make_unique<Array<__half>>(int64_t(count) * m * n));
    stacks.push_back({count,
                      m,
                      n,
                      inputs.back()->data(),
                      ElementType::kFloat32,
                      n,
                      int64_t(m) * n,
                      {outputs.back()->data(), n, int64_t(m) * n}});
  }
  const int count = int(stacks.size());
  Array<char> workspace(int64_t(orthogonalize_workspace(stacks.data(), count, options)));
  std::vector<std::vector<__half>> alone;
  for (int i = 0; i < count; ++i) {
    require(orthogonalize(&stacks[i], 1, options, workspace.data(), workspace.size(), nullptr));
    alone.push_back(outputs[i]->get());
    outputs[i]->poison();
  }
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  require(cudaStreamCreate(&stream));
  require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  require(orthogonalize(stacks.data(), count, options, workspace.data(), workspace.size(), stream));
  require(cudaStreamEndCapture(stream, &graph));
  require(cudaGraphInstantiate(&executable, graph, 0));
  for (int replay = 0; replay < 20; ++replay) {
    require(cudaGraphLaunch(executable, stream));
    bool same = true;
    for (int i = 0; i < count; ++i) {
      const std::vector<__half> together = outputs[i]->get();
      same &= same_bits(alone[i], together);
      outputs[i]->poison();
    }
    expect(same, "stacks together, replayed, give the bits of each alone");
  }
}

void check_zero() {
  const auto rows = polar_express_coefficients({.steps = 4, .lower = 5e-3});
  for (const auto form : {OrthogonalizeOptions::Form::kDirect, OrthogonalizeOptions::Form::kGram}) {
    std::vector<double> x = gaussian(2 * 136 * 264, 1);
    std::fill(x.begin(), x.begin() + 136 * 264, 0.0);
    const std::vector<double> ours = run_ours(x, 2, 136, 264, rows, form, false);
    bool zero = true, other = false;
    for (int i = 0; i < 136 * 264; ++i) zero &= ours[i] == 0, other |= ours[136 * 264 + i] != 0;
    expect(zero && other, "zero gives zero, its neighbour does not");
  }
}

void check_products() {
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
}

void check_scales() {
  check_orthogonalizer(3, 264, 104, 0, 1e-30, Form::kAuto, false);
  check_orthogonalizer(3, 104, 264, 0, 1e30, Form::kAuto, false);
  check_orthogonalizer(2, 99, 301, 0, 1e-20, Form::kGram, false);
  check_orthogonalizer(2, 301, 99, 0, 1e30, Form::kDirect, false, 5);
  check_orthogonalizer(2, 64, 216, 0, 1, Form::kAuto, false, 6);
  check_zero();
}

}  // namespace
}  // namespace gluon::kernel_check

int main(int count, char** arguments) {
  using namespace gluon::kernel_check;
  small = count > 1 && arguments[1] == std::string("small");
  std::vector<Check> checks{{"products", check_products},
                            {"targets", check_targets},
                            {"scales", check_scales},
                            {"several stacks", check_together}};
  if (!small) checks.push_back({"models' shapes", check_large});
  return run_program(count, arguments, checks, nullptr);
}
