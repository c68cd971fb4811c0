// optimizer_check: momentum, parameter update and sign update against float64.

#include <tuple>

#include "gluon/kernels/cuda/update.h"
#include "tests/kernels/step_memory.h"

namespace gluon::kernel_check {
namespace {

// |x| of each matrix in float64.
template <typename T> Vector lengths_of(const std::vector<T>& x, size_t size) {
  Vector lengths(x.size() / size);
  for (size_t i = 0; i < x.size(); ++i) lengths[i / size] += to_double(x[i]) * to_double(x[i]);
  for (double& length : lengths) length = std::sqrt(length);
  return lengths;
}

double blended(double momentum, double gradient) { return double{kBeta} * momentum + double{1 - kBeta} * gradient; }

void expect_momentum(const std::vector<float>& got, const std::vector<float>& m, const std::vector<float>& g,
                     double magnitude, const std::string& what) {
  Vector want;
  for (size_t i = 0; i < m.size(); ++i) want.push_back(blended(m[i], g[i]));
  expect_close(got, want, 1.2e-7, 1.5e-7 * magnitude + 2e-45, what + ": momentum");
}

void check_momentum_case(size_t count, size_t size, size_t offset, bool nesterov, double magnitude) {
  const std::string what =
      join("momentum ", nesterov ? "nesterov " : "ema ", count, "x", size, " at ", magnitude, " offset ", offset);
  std::mt19937_64 random(size + count);
  std::vector<float> g = random_values<float>(count * size, magnitude, random);
  std::vector<float> m = random_values<float>(count * size, magnitude, random);
  if (count > 1) {  // one zero matrix
    std::fill_n(g.begin() + size, size, 0.0F);
    std::fill_n(m.begin() + size, size, 0.0F);
  }
  StepMemory memory(count, size, offset);
  memory.gradients.set(g);
  const float length = 3;
  memory.step.nesterov = nesterov, memory.step.length = length;
  const auto run = [&] {
    memory.momentum.set(m);
    poison(memory.output, memory.gradient_squares, memory.momentum_squares);
    memory.measure_and_judge(nullptr);
    expect(same_bits(m, memory.momentum.get()), what + ": measuring changed the momentum");
    memory.accumulate(nullptr);
  };
  expect_repeatable(what, run, memory.output, memory.momentum, memory.gradient_squares, memory.momentum_squares,
                    memory.scales);
  const std::vector<__half> got = memory.output.get();
  const std::vector<float> kept = memory.momentum.get();
  expect_momentum(kept, m, g, magnitude, what);
  const Vector gradient_lengths = lengths_of(g, size), momentum_lengths = lengths_of(m, size);
  Vector want;
  for (size_t i = 0; i < m.size(); ++i) {
    const double input = nesterov ? blended(kept[i], g[i]) : kept[i], gradient = gradient_lengths[i / size];
    double bound = blended(momentum_lengths[i / size], gradient);
    if (nesterov) bound = blended(bound, gradient);
    want.push_back(bound == 0 ? 0 : input * length / bound);
  }
  const double unit = 0x1p-11;
  // The input of denormal matrices has few bits itself.
  const double input_error = nesterov && magnitude < 1e-38 ? 2e-45 / magnitude : 0;
  expect_close(got, want, 1.01 * unit + 2e-6 + input_error, 0x1p-25 + (input_error + 2e-6) * largest(want),
               what + ": output");
  for (const double got_length : lengths_of(got, size)) {
    expect(got_length <= length * (1 + 2 * unit), what + ": the output is longer than `length`");
  }
  const std::vector<double> carried = memory.momentum_squares.get();
  require(cuda::measure_momentum(memory.step, nullptr));
  expect(offset != 0 || same_bits(carried, memory.momentum_squares.get()), what + ": squares are out of date");
}

void check_update_case(size_t count, size_t size, size_t offset, double decay) {
  const std::string what = join("update ", count, "x", size);
  std::mt19937_64 random(size);
  const std::vector<float> x = random_values<float>(count * size, 0.03, random);
  const std::vector<__half> d = random_values<__half>(count * size, 0.02, random);
  const std::vector<float> radii = random_values<float>(count, 0.1, random);
  StepMemory memory(count, size, offset);
  memory.radii.set(radii), memory.output.set(d);
  memory.step.verdict = nullptr;
  memory.update.direction_factor = -2, memory.decay.set({static_cast<float>(decay)});
  const auto run = [&] { memory.parameters.set(x), memory.move(nullptr); };
  expect_repeatable(what, run, memory.parameters.entries());
  Vector want;
  for (size_t i = 0; i < x.size(); ++i) {
    const double radius = radii[i / size];
    want.push_back((1 - decay * radius) * x[i] - 2 * radius * to_double(d[i]));
  }
  expect_close(memory.parameters.get(), want, 2e-7, 1e-8, what);
}

void check_sign_case(size_t count, size_t size, size_t offset, bool nesterov, double magnitude, bool cautious = false) {
  const std::string what =
      join("sign ", nesterov ? "nesterov " : "ema ", count, "x", size, " at ", magnitude, cautious ? " cautious" : "");
  std::mt19937_64 random(size);
  std::vector<float> g = random_values<float>(count * size, magnitude, random);
  std::vector<float> m = random_values<float>(count * size, magnitude, random);
  const std::vector<float> x = random_values<float>(count * size, 0.03, random), radii{0.5F, 0.25F, 3};
  for (size_t i = 0; i < m.size(); i += 7) m[i] = 0, g[i] = 0;
  StepMemory memory(count, size, offset);
  memory.gradients.set(g), memory.radii.set(radii);
  memory.step.verdict = nullptr, memory.step.nesterov = nesterov;
  memory.update.direction_factor = -0.01F, memory.decay.set({0.1F}), memory.update.cautious = cautious;
  const auto run = [&] { memory.parameters.set(x), memory.momentum.set(m), memory.move_by_sign(nullptr); };
  expect_repeatable(what, run, memory.parameters.entries(), memory.momentum);
  const std::vector<float> kept = memory.momentum.get();
  Vector want;
  for (size_t i = 0; i < m.size(); ++i) {
    const double radius = radii[i / size], input = nesterov ? blended(kept[i], g[i]) : kept[i];
    const double sign = input > 0 ? 1 : input < 0 ? -1 : 0;
    const double keep = cautious && x[i] * sign < 0 ? 1 : 1 - double{0.1F} * radius;
    want.push_back(keep * x[i] + double{-0.01F} * radius * sign);
  }
  expect_momentum(kept, m, g, magnitude, what);
  expect_close(memory.parameters.get(), want, 3e-7, 3e-8, what + ": parameters");
}

// The verdict names the matrix of a bad gradient, and nothing moves.
void check_verdict() {
  const size_t size = 3 * 4096, count = 3;
  std::mt19937_64 random(5);
  std::vector<float> g = random_values<float>(count * size, 1, random);
  const std::vector<float> m = random_values<float>(count * size, 1, random);
  StepMemory memory(count, size);
  memory.radii.set(std::vector<float>(count, 1.0F));
  for (const float bad : {1.0F, NAN, -INFINITY}) {
    g[2 * size + 4097] = bad;
    memory.gradients.set(g), memory.parameters.set(m), memory.momentum.set(m);
    memory.output.set(std::vector<__half>(count * size, __float2half(0.5F)));
    memory.measure_and_judge(nullptr);
    memory.accumulate(nullptr), memory.move(nullptr), memory.move_by_sign(nullptr);
    const bool finite = std::isfinite(bad);
    const int found = memory.verdict.get()[0].first_bad;
    expect(found == (finite ? cuda::kAllFinite : 2), join("verdict: ", found, " for ", bad));
    expect(same_bits(memory.momentum.get(), m) != finite, join("verdict: momentum with ", bad));
    expect(same_bits(memory.parameters.get(), m) != finite, join("verdict: parameters with ", bad));
  }
}

void check_momentum() {
  cuda::MomentumStep empty{.count = 1, .size = 4};
  expect(cuda::measure_gradients({&empty, 1}, nullptr) == cudaErrorInvalidValue, "momentum: no pointers");
  empty.size = 0;
  expect(cuda::measure_gradients({&empty, 1}, nullptr) == cudaSuccess, "momentum: nothing to do");
  for (const bool nesterov : {false, true}) {
    for (const double magnitude : {1.0, 1e-30, 1e30, 1e-42}) {
      check_momentum_case(3, 768 * 64, 0, nesterov, magnitude);
      check_momentum_case(2, 4099, 0, nesterov, magnitude);
    }
    check_momentum_case(2, 5 * 4096 + 8, 0, nesterov, 1e-30);
    check_momentum_case(4, 15, 1, nesterov, 1);
    check_momentum_case(1, 1, 0, nesterov, 1);
    check_momentum_case(3, 96 * 100, 1, nesterov, 1e-3);
    check_momentum_case(2, 600 * 4096 + 4, 0, nesterov, 1);  // several tiles per partial sum
  }
}

void check_updates() {
  const cuda::MomentumStep empty{.count = 1, .size = 4};
  expect(cuda::update_parameters(empty, nullptr, {}, nullptr) == cudaErrorInvalidValue, "update: no pointers");
  expect(cuda::update_by_sign(empty, {}, nullptr) == cudaErrorInvalidValue, "sign: no pointers");
  for (const auto& [count, size, offset] : {std::tuple{3, 64 * 768, 0}, {2, 4099, 0}, {1, 1, 0}, {5, 20, 1}}) {
    for (const double decay : {0.0, 0.1}) check_update_case(count, size, offset, decay);
    if (count > 3) continue;
    for (const bool nesterov : {false, true}) {
      check_sign_case(count, size, offset, nesterov, 1);
      check_sign_case(count, size, 1, nesterov, 1e-30);
      check_sign_case(count, size, offset, nesterov, 1e30);
      check_sign_case(count, size, offset, nesterov, 1, /*cautious=*/true);
    }
  }
}

void check_graph() {
  const size_t count = 3, size = 96 * 128;
  std::mt19937_64 random(5);
  const auto values = [&] { return random_values<float>(count * size, 1, random); };
  const std::vector<float> m = values(), x = values();
  StepMemory memory(count, size);
  memory.gradients.set(values()), memory.radii.set({0.1F, 0.2F, 0.3F});
  expect_capturable([&] { memory.momentum.set(m), memory.parameters.set(x), memory.output.poison(); },
                    [&](cudaStream_t stream) {
                      memory.measure_and_judge(stream);
                      memory.accumulate(stream), memory.move(stream), memory.move_by_sign(stream);
                    },
                    [&] { return bits_of(memory.momentum, memory.parameters.entries(), memory.output); });
}

}  // namespace
}  // namespace gluon::kernel_check

int main(int, char** arguments) {
  using namespace gluon::kernel_check;
  return run_program(arguments[0], {{"verdict", check_verdict},
                                    {"momentum", check_momentum},
                                    {"updates", check_updates},
                                    {"step factors", check_step_factors},
                                    {"graph", check_graph}});
}
