// orthogonalize_check [small]: the half precision products and the orthogonalizer against float64.
//
// Products: relative error below 6e-4 (rounding the result to fp16 gives 2.1e-4). Orthogonalizer: close to the same
// polynomials in float64, and no farther from the exact polar factor than five steps of Polar Express in bf16.

#include <algorithm>
#include <deque>
#include <numeric>

#include "gluon/kernels/cuda/orthogonalize.h"
#include "gluon/kernels/half_plan.h"
#include "tests/kernels/orthogonalize_reference.h"

namespace gluon::kernel_check {
namespace {

using namespace gluon::cuda;

// For compute-sanitizer: small matrices, and no reference in bf16, whose cuBLAS kernels it cannot run.
bool small = false;

int64_t padded(int n) { return (n + 7) / 8 * 8; }

double sum_of_squares(const Vector& x) { return std::inner_product(x.begin(), x.end(), x.begin(), 0.0); }

// A random half precision stack with some room after each row, filled with NaN there, and its entries in float64.
struct Stack {
  int m;
  int64_t stride;
  Array<__half> half;
  Array<double> dense;

  Stack(int count, int m, int n, unsigned seed, bool symmetric)
      : m(m), stride(padded(n) + 8), half(count * m * stride), dense(int64_t(count) * m * n) {
    const Vector values = gaussian(int64_t(count) * m * n, seed);
    std::vector<__half> entries(half.size(), __float2half(NAN));
    Vector rounded(values.size());
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

// C = alpha A B, + beta D (one addend), + a multiple of I where C is symmetric (two). kSymmetric is checked with B = A,
// as the same and (two addends) another buffer.
void check_product(ProductKind kind, int count, int m, int n, int addends) {
  using enum ProductKind;
  const char* names[] = {"row gram ", "column gram ", "symmetric ", "left ", "right "};
  const std::string what = join(names[int(kind)], count, "x", m, "x", n, ", ", addends, " addends: ");
  const bool row = kind == kRowGram, column = kind == kColumnGram, gram = row || column;
  const bool square = kind == kSymmetric, right = kind == kRight, symmetric = gram || square;
  const int rows = column ? n : m, columns = row || square ? m : n, depth = row || right ? n : m;
  const Stack a = gram || right ? Stack(count, m, n, 1, false) : Stack(count, m, m, 2, true);
  const Stack b = kind == kLeft ? Stack(count, m, n, 3, false)
                  : right       ? Stack(count, n, n, 4, true)
                                : Stack(count, m, m, 2, true);
  Stack c(count, rows, columns, 6, false), d(count, rows, columns, 7, symmetric);
  Array<float> squares(int64_t(count) * product_partials(rows));

  Product product;
  product.kind = kind;
  product.count = count;
  product.rows = m;
  product.columns = n;
  product.a = a.view();
  product.b = square && addends < 2 ? a.view() : b.view();
  product.c = c.view();
  product.alpha = float(1 / std::sqrt(double(depth)));
  if (addends > 0) product.d = d.view(), product.beta = -0.5f;
  if (addends > 1 && symmetric) product.identity = 2;
  const bool sums = gram && product.identity == 0;
  if (sums) product.squares = squares.data();
  Array<int> progress(product_progress({&product, 1}));
  const auto run = [&] {
    c.half.poison();  // NaN everywhere: an entry that is not written fails
    require(launch_products({&product, 1}, progress.data(), nullptr));
  };
  expect_repeatable(what, run, c.half);

  multiply(count, rows, columns, depth, product.alpha, a.dense.data(), column, gram ? a.dense.data() : b.dense.data(),
           row, product.beta, d.dense.data());
  Vector expected = d.dense.get();
  for (int64_t i = 0; symmetric && i < int64_t(count) * rows; ++i) expected[i * rows + i % rows] += product.identity;
  const std::vector<__half> first = c.half.get();
  const Vector result = gather(first, count, rows, columns, c.stride);
  const double error = distance(result, expected, sum_of_squares(expected));
  expect(error < 6e-4, join(what, "relative error ", error));

  bool padding = true, mirrored = true;
  for (int64_t i = 0; i < int64_t(count) * rows; ++i) {
    for (int64_t j = columns; j < c.stride; ++j) {
      const unsigned short bits = __half_as_ushort(first[i * c.stride + j]);
      padding &= bits == 0xffff || (bits == 0 && j < padded(columns));
    }
  }
  for (int64_t i = 0; symmetric && i < rows; ++i) {
    for (int64_t j = 0; j < i / 128 * 128; ++j) mirrored &= result[i * columns + j] == result[j * columns + i];
  }
  expect(padding, what + "nothing is written beside the matrix");
  expect(mirrored, what + "both triangles hold the same bits");
  const std::vector<float> partial = squares.get();
  const int64_t partials = product_partials(rows), size = int64_t(rows) * rows;
  for (int i = 0; sums && i < count; ++i) {
    const double sum = std::accumulate(&partial[i * partials], &partial[i * partials] + partials, 0.0);
    const double wanted = sum_of_squares({&expected[i * size], &expected[i * size] + size});
    expect(std::abs(sum / wanted - 1) <= 1e-4, what + "partial sums add up to |C|^2");
  }
}

// The orthogonalizer's call on some stacks, with a workspace of its own.
struct Call {
  std::vector<OrthogonalizeStack> stacks;
  std::vector<PolarStep> steps;
  OrthogonalizeOptions options{.steps = steps};
  Array<char> workspace{orthogonalize_workspace(stacks, options)};

  void run(cudaStream_t stream = nullptr) const {
    require(orthogonalize(stacks, options, workspace.data(), workspace.size(), stream));
  }
};

// polar_squares with 8 or 9 squares, Polar Express with up to 6 steps.
std::vector<PolarStep> iteration(int number) {
  if (number >= 8) return polar_squares_steps(number);
  return quintic_steps(polar_express_coefficients({.steps = number, .lower = number <= 4 ? 5e-3 : 1e-3}));
}

// Contiguous float32 input, or half precision input whose rows are padded as the output's.
OrthogonalizeStack stack_of(int count, int m, int n, const void* input, ElementType type, const Array<__half>& output) {
  const int64_t stride = type == ElementType::kFloat32 ? n : padded(n);
  return {count, m, n, input, type, stride, stride * m, {output.data(), padded(n), padded(n) * m}};
}

Vector run_ours(const Vector& x, int count, int m, int n, int number, bool half_input) {
  const int64_t stride = padded(n);
  Array<__half> output(count * m * stride), input(count * m * stride);
  const Array<float> device(std::vector<float>(x.begin(), x.end()));
  OrthogonalizeStack stack = stack_of(count, m, n, device.data(), ElementType::kFloat32, output);
  if (half_input) {
    const Vector scaled = scaled_by_frobenius(x, count, orthogonalize_input_length(m, n));
    std::vector<__half> entries(input.size());
    for (int64_t i = 0; i < int64_t(count) * m; ++i) {
      for (int j = 0; j < n; ++j) entries[i * stride + j] = rounded<__half>(scaled[i * n + j]);
    }
    input.set(entries);
    stack = stack_of(count, m, n, input.data(), ElementType::kFloat16, output);
  }
  Call call{{stack}, iteration(number)};
  const auto run = [&] {
    poison(call.workspace, output);
    call.run();
  };
  expect_repeatable(join("orthogonalize ", count, "x", m, "x", n), run, output, call.workspace);
  expect(orthogonalize(call.stacks, call.options, call.workspace.data(), call.workspace.size() - 1, nullptr) ==
             cudaErrorInvalidValue,
         "a small workspace is refused");
  return gather(output.get(), count, m, n, stride);
}

// power: singular values about i^-power; scale multiplies the input.
void check_orthogonalizer(int count, int m, int n, double power, double scale, bool half_input = false,
                          int number = 8) {
  const std::string what = join(count, "x", m, "x", n, ", power ", power, ", scale ", scale, ", ",
                                number < 8 ? "polar_express:" : "polar_squares:", number, ": ");
  const double unit = double(count) * std::min(m, n);
  Vector x = gaussian(int64_t(count) * m * n, unsigned(m + n));
  for (int64_t i = 0; i < int64_t(count) * m * n; ++i) {
    const int64_t index = m <= n ? i / n % m : i % n;
    x[i] = float(x[i] * std::pow(double(index + 1), -power) * scale);
  }
  const Vector ours = run_ours(x, count, m, n, number, half_input);
  const double rounding = distance(ours, same_polynomials(x, count, m, n, iteration(number)), unit);
  // Emulated on the CPU: up to 0.010 with squares and 0.012 with five quintics on steep spectra, 0.028 with an updated R.
  const double most = kernels::updates_last(iteration(number), m, n) ? 4e-2 : 2e-2;
  expect(rounding < most, join(what, rounding, " from the same polynomials in float64"));
  if (small) return;
  const Vector exact = exact_polar(x, count, m, n), in_bf16 = bf16_polar_express(x, count, m, n);
  const double polar = distance(ours, exact, unit), bf16_polar = distance(in_bf16, exact, unit);
  const double orthogonal = orthogonality_error(ours, count, m, n);
  const double bf16_orthogonal = orthogonality_error(in_bf16, count, m, n);
  // On Gaussian matrices both end in the ripple of their last step.
  const double slack = power == 0 || number < 8 ? 1.1 : 1;
  expect(polar <= slack * bf16_polar, join(what, polar, " from the polar factor, bf16 Polar Express ", bf16_polar));
  expect(orthogonal <= slack * bf16_orthogonal,
         join(what, orthogonal, " from orthogonal, bf16 Polar Express ", bf16_orthogonal));
}

// The shapes of a GPT-124M and larger, and spectra like i^-power.
void check_large() {
  for (const bool half_input : {false, true}) {
    check_orthogonalizer(4, 768, 768, 0, 1, half_input);
    check_orthogonalizer(2, 768, 3072, 0, 1, half_input);
    check_orthogonalizer(2, 3072, 768, 0, 1, half_input);
  }
  for (const double power : {0.5, 1.0, 2.0}) {
    check_orthogonalizer(2, 768, 768, power, 1);
    check_orthogonalizer(2, 768, 3072, power, 1);
    check_orthogonalizer(2, 1144, 768, power, 1, false, 9);
    check_orthogonalizer(3, 3072, 768, power, 1, false, 9);
    check_orthogonalizer(2, 768, 768, power, 1, false, 5);
    check_orthogonalizer(2, 3072, 768, power, 1, false, 5);
  }
  check_orthogonalizer(2, 768, 768, 0, 1, false, 9);
  check_orthogonalizer(1, 2048, 2048, 0, 1);
  check_orthogonalizer(1, 1024, 4096, 1, 1);
}

// Stacks of different shapes in one call, replayed as a graph: the same bits as one call each.
void check_together() {
  const int shapes[][3] = {{9, 384, 384}, {4, 640, 136}, {5, 136, 640}, {3, 264, 256}};
  std::deque<Array<float>> inputs;
  std::deque<Array<__half>> outputs;
  std::vector<OrthogonalizeStack> stacks;
  for (const auto& [count, m, n] : shapes) {
    const Vector x = gaussian(int64_t(count) * m * n, unsigned(m));
    const auto& input = inputs.emplace_back(std::vector<float>(x.begin(), x.end()));
    const auto& output = outputs.emplace_back(int64_t(count) * m * n);
    stacks.push_back(stack_of(count, m, n, input.data(), ElementType::kFloat32, output));
  }
  const auto bits = [&] { return bits_of(outputs[0], outputs[1], outputs[2], outputs[3]); };
  for (const OrthogonalizeStack& stack : stacks) Call{{stack}, iteration(8)}.run();
  const Bits alone = bits();
  const Call together{stacks, iteration(8)};
  expect_capturable([&] { poison(outputs[0], outputs[1], outputs[2], outputs[3]); },
                    [&](cudaStream_t stream) { together.run(stream); }, bits, 20);
  expect(alone == bits(), "stacks together, replayed, give the bits of each alone");
}

// Parameters that the last product moves, against the polar factors of the same call without targets.
void check_target_case(int count, int m, int n, int first_bad) {
  const int64_t size = int64_t(m) * n, all = size * count;
  const Vector values = gaussian(all, unsigned(m + n));
  const std::vector<float> start(values.rbegin(), values.rend());
  std::vector<__half> input;
  for (const double value : values) input.push_back(rounded<__half>(value / std::sqrt(std::max(m, n))));
  std::vector<float> radii;
  for (int i = 0; i < count; ++i) radii.push_back(0.02f * float(i + 1));
  const Array<__half> x(input), output(all);
  const Array<float> parameters(start), lengths(radii);
  std::vector<float*> addresses;
  for (int i = 0; i < count; ++i) addresses.push_back(parameters.data() + i * size);
  const Array<float*> table(addresses);
  const Array<Verdict> verdict(std::vector<Verdict>{{first_bad, 0, 0}});
  Call call{{stack_of(count, m, n, x.data(), ElementType::kFloat16, output)}, iteration(8)};
  call.run();
  const std::vector<__half> directions = output.get();
  const float factor = -1.5f;
  call.stacks[0].target = {table.data(), lengths.data(), factor, verdict.data()};
  call.run();
  const std::vector<float> got = parameters.get();
  int64_t wrong = 0;
  for (int64_t i = 0; i < all; ++i) {
    // Both roundings of float32.
    const volatile float step = factor * radii[i / size] * __half2float(directions[i]);
    wrong += got[i] != (first_bad == kAllFinite ? start[i] + step : start[i]);
  }
  expect(wrong == 0, join("targets ", count, "x", m, "x", n, first_bad == kAllFinite ? " moved" : " left out", ": ",
                          wrong, " of ", all, " entries are wrong"));
}

void check_targets() {
  for (const int verdict : {kAllFinite, 0}) {
    check_target_case(3, 100, 192, verdict);
    check_target_case(2, 300, 64, verdict);
    check_target_case(1, 264, 576, verdict);
  }
}

void check_zero() {
  for (const int n : {136, 264}) {
    Vector x = gaussian(2 * 136 * n, 1);
    std::fill_n(x.begin(), 136 * n, 0.0);
    const Vector ours = run_ours(x, 2, 136, n, 8, false);
    bool zero = true, other = false;
    for (int i = 0; i < 136 * n; ++i) zero &= ours[i] == 0, other |= ours[136 * n + i] != 0;
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
  check_orthogonalizer(3, 264, 104, 0, 1e-30);
  check_orthogonalizer(3, 104, 264, 0, 1e30);
  check_orthogonalizer(2, 99, 301, 0, 1e-20);
  check_orthogonalizer(2, 301, 99, 0, 1e30, false, 6);
  check_orthogonalizer(2, 64, 216, 0, 1, false, 6);
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
  return run_program(arguments[0], checks);
}
