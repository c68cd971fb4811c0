// optimizer_check [check|speed]: momentum, parameter update and sign update against float64, and their speed.

#include <tuple>

#include "tests/kernels/kernel_check.h"
#include "tests/kernels/kernel_clock.cuh"
#include "tests/kernels/step_memory.h"

namespace gluon::kernel_check {
namespace {

const char* name_of(bool nesterov) { return nesterov ? "nesterov" : "ema"; }

// |x| of each matrix in float64.
template <typename T> std::vector<double> lengths_of(const std::vector<T>& x, size_t size) {
  std::vector<double> lengths(x.size() / size);
  for (size_t i = 0; i < x.size(); ++i) lengths[i / size] += to_double(x[i]) * to_double(x[i]);
  for (double& length : lengths) length = std::sqrt(length);
  return lengths;
}

double blended(double momentum, double gradient) { return double{kBeta} * momentum + double{1 - kBeta} * gradient; }

void measure_and_judge(const cuda::MomentumStep& step, const StepMemory& memory, cudaStream_t stream) {
  require(cuda::measure_momentum(step, stream));
  require(cuda::measure_gradients(&step, 1, memory.verdict.data(), stream));
  require(cuda::judge(&step, 1, memory.verdict.data(), nullptr, stream));
}

void expect_momentum(const std::vector<float>& got, const std::vector<float>& m, const std::vector<float>& g,
                     double magnitude, const std::string& what) {
  std::vector<double> want;
  for (size_t i = 0; i < m.size(); ++i) want.push_back(blended(m[i], g[i]));
  expect_close(got, want, 1.2e-7, 1.5e-7 * magnitude + 2e-45, what + ": momentum");
}

void check_momentum_case(size_t count, size_t size, size_t offset, bool nesterov, double magnitude) {
  const std::string what =
      join("momentum ", name_of(nesterov), " ", count, "x", size, " at ", magnitude, " offset ", offset);
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
  cuda::MomentumStep step = memory.momentum_step(nesterov);
  step.length = length, step.verdict = memory.verdict.data();
  const auto run = [&] {
    memory.momentum.set(m);
    poison(memory.output, memory.gradient_squares, memory.momentum_squares);
    measure_and_judge(step, memory, nullptr);
    expect(same_bits(m, memory.momentum.get()), what + ": measuring changed the momentum");
    require(cuda::accumulate_momentum(&step, 1, nullptr));
  };
  expect_repeatable(what, run, memory.output, memory.momentum, memory.gradient_squares, memory.momentum_squares,
                    memory.scales);
  const std::vector<__half> got = memory.output.get();
  const std::vector<float> kept = memory.momentum.get();
  expect_momentum(kept, m, g, magnitude, what);
  const std::vector<double> gradient_lengths = lengths_of(g, size), momentum_lengths = lengths_of(m, size);
  std::vector<double> want;
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
  require(cuda::measure_momentum(step, nullptr));
  expect(offset != 0 || same_bits(carried, memory.momentum_squares.get()), what + ": squares are out of date");
  memory.momentum.set(m);
  step.output = nullptr;
  require(cuda::accumulate_momentum(&step, 1, nullptr));
  expect(same_bits(kept, memory.momentum.get()), what + ": without an output");
}

void check_update_case(size_t count, size_t size, size_t offset, double decay) {
  const std::string what = join("update ", count, "x", size);
  std::mt19937_64 random(size);
  const std::vector<float> x = random_values<float>(count * size, 0.03, random);
  const std::vector<__half> d = random_values<__half>(count * size, 0.02, random);
  const std::vector<float> radii = random_values<float>(count, 0.1, random);
  StepMemory memory(count, size, offset);
  memory.radii.set(radii), memory.output.set(d);
  cuda::ParameterUpdate update = memory.parameter_update();
  update.direction_factor = -2, update.decay = static_cast<float>(decay);
  const auto run = [&] {
    memory.parameters.set(x);
    require(cuda::update_parameters(update, nullptr));
  };
  expect_repeatable(what, run, memory.parameters.entries());
  std::vector<double> want;
  for (size_t i = 0; i < x.size(); ++i) {
    const double radius = radii[i / size];
    want.push_back((1 - decay * radius) * x[i] - 2 * radius * to_double(d[i]));
  }
  expect_close(memory.parameters.get(), want, 2e-7, 1e-8, what);
}

void check_sign_case(size_t count, size_t size, size_t offset, bool nesterov, double magnitude) {
  const std::string what = join("sign ", name_of(nesterov), " ", count, "x", size, " at ", magnitude);
  std::mt19937_64 random(size);
  std::vector<float> g = random_values<float>(count * size, magnitude, random);
  std::vector<float> m = random_values<float>(count * size, magnitude, random);
  const std::vector<float> x = random_values<float>(count * size, 0.03, random), radii{0.5F, 0.25F, 3};
  for (size_t i = 0; i < m.size(); i += 7) m[i] = 0, g[i] = 0;
  StepMemory memory(count, size, offset);
  memory.gradients.set(g), memory.radii.set(radii);
  cuda::SignUpdate update = memory.sign_update(nesterov);
  update.direction_factor = -0.01F, update.decay = 0.1F;
  const auto run = [&] {
    memory.parameters.set(x), memory.momentum.set(m);
    require(cuda::update_by_sign(update, nullptr));
  };
  expect_repeatable(what, run, memory.parameters.entries(), memory.momentum);
  const std::vector<float> kept = memory.momentum.get();
  std::vector<double> want;
  for (size_t i = 0; i < m.size(); ++i) {
    const double radius = radii[i / size], input = nesterov ? blended(kept[i], g[i]) : kept[i];
    const double sign = input > 0 ? 1 : input < 0 ? -1 : 0;
    want.push_back((1 - double{0.1F} * radius) * x[i] + double{-0.01F} * radius * sign);
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
    cuda::MomentumStep step = memory.momentum_step();
    cuda::ParameterUpdate update = memory.parameter_update();
    cuda::SignUpdate sign_update = memory.sign_update();
    step.verdict = update.verdict = sign_update.verdict = memory.verdict.data();
    measure_and_judge(step, memory, nullptr);
    require(cuda::accumulate_momentum(&step, 1, nullptr));
    require(cuda::update_parameters(update, nullptr));
    require(cuda::update_by_sign(sign_update, nullptr));
    const bool finite = std::isfinite(bad);
    const int found = memory.verdict.get()[0].first_bad;
    expect(found == (finite ? cuda::kAllFinite : 2), join("verdict: ", found, " for ", bad));
    expect(same_bits(memory.momentum.get(), m) != finite, join("verdict: momentum with ", bad));
    expect(same_bits(memory.parameters.get(), m) != finite, join("verdict: parameters with ", bad));
  }
}

void check_momentum() {
  Array<cuda::Verdict> verdict{std::vector<cuda::Verdict>(1)};
  cuda::MomentumStep empty{.count = 1, .size = 4};
  expect(cuda::measure_gradients(&empty, 1, verdict.data(), nullptr) == cudaErrorInvalidValue, "momentum: no pointers");
  empty.size = 0;
  expect(cuda::measure_gradients(&empty, 1, verdict.data(), nullptr) == cudaSuccess, "momentum: nothing to do");
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
  expect(cuda::update_parameters({.count = 1, .size = 4}, nullptr) == cudaErrorInvalidValue, "update: no pointers");
  expect(cuda::update_by_sign({.count = 1, .size = 4}, nullptr) == cudaErrorInvalidValue, "sign: no pointers");
  for (const auto& [count, size, offset] : {std::tuple{3, 64 * 768, 0}, {2, 4099, 0}, {1, 1, 0}, {5, 20, 1}}) {
    for (const double decay : {0.0, 0.1}) check_update_case(count, size, offset, decay);
    if (count > 3) continue;
    for (const bool nesterov : {false, true}) {
      check_sign_case(count, size, offset, nesterov, 1);
      check_sign_case(count, size, 1, nesterov, 1e-30);
      check_sign_case(count, size, offset, nesterov, 1e30);
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
  cuda::MomentumStep step = memory.momentum_step();
  step.verdict = memory.verdict.data();
  expect_capturable([&] { memory.momentum.set(m), memory.parameters.set(x), memory.output.poison(); },
                    [&](cudaStream_t stream) {
                      measure_and_judge(step, memory, stream);
                      require(cuda::accumulate_momentum(&step, 1, stream));
                      require(cuda::update_parameters(memory.parameter_update(), stream));
                      require(cuda::update_by_sign(memory.sign_update(), stream));
                    },
                    [&] { return bits_of(memory.momentum, memory.parameters.entries(), memory.output); });
}

// Contiguous matrices of random entries.
struct Layers : StepMemory {
  Layers(size_t count, size_t size) : StepMemory(count, size, /*offset=*/0, /*gap=*/0) {
    fill_random(gradients.entries()), fill_random(parameters.entries());
    fill_random(momentum), fill_random(output);
  }
};

void measure_layers(Clock& clock, int64_t count, int64_t rows, int64_t columns) {
  const Layers layers(count, rows * columns);
  const std::string shape = join(count, " x ", rows, " x ", columns);
  const double n = static_cast<double>(layers.momentum.size());
  for (const bool nesterov : {false, true}) {
    const cuda::MomentumStep step = layers.momentum_step(nesterov);
    cuda::Verdict* verdict = layers.verdict.data();
    const auto measure = [&] { return cuda::measure_gradients(&step, 1, verdict, nullptr); };
    const auto judge = [&] { return cuda::judge(&step, 1, verdict, nullptr, nullptr); };
    const auto accumulate = [&] { return cuda::accumulate_momentum(&step, 1, nullptr); };
    const auto all = [&] {
      for (const cudaError_t error : {measure(), judge()}) {
        if (error != cudaSuccess) return error;
      }
      return accumulate();
    };
    if (!nesterov) clock.row("measured gradients", shape, 4 * n, measure);
    clock.row(nesterov ? "momentum, fp16 input, nesterov" : "momentum, fp16 input, ema", shape, 14 * n, accumulate);
    clock.row("  both and the verdict", shape, 18 * n, all);
  }
  clock.row("update, fp16 direction", shape, 10 * n,
            [&] { return cuda::update_parameters(layers.parameter_update(), nullptr); });
}

// The shapes of GPT-124M and of a model of 1.3 billion parameters.
void measure_speed() {
  Clock clock;
  {
    Random<float> from(512 << 20), to(512 << 20);
    clock.row("cudaMemcpyAsync", "2 GiB", 8.0 * from.size(), [&] {
      return cudaMemcpyAsync(to.data(), from.data(), from.size() * 4, cudaMemcpyDeviceToDevice, nullptr);
    });
  }
  measure_layers(clock, 48, 768, 768);
  measure_layers(clock, 24, 3072, 768);
  measure_layers(clock, 48, 2048, 2048);
  measure_layers(clock, 24, 2048, 8192);
  const Layers embedding(1, 50304 * 768);
  clock.row("sign update", "50304 x 768", 20.0 * embedding.momentum.size(),
            [&] { return cuda::update_by_sign(embedding.sign_update(), nullptr); });
}

}  // namespace
}  // namespace gluon::kernel_check

int main(int count, char** arguments) {
  using namespace gluon::kernel_check;
  return run_program(
      count, arguments,
      {{"verdict", check_verdict}, {"momentum", check_momentum}, {"updates", check_updates}, {"graph", check_graph}},
      measure_speed);
}
