// Momentum, parameter update and sign update against float64.

#include "gluon/kernels/cuda/momentum.h"
#include "gluon/kernels/cuda/sign_update.h"
#include "gluon/kernels/cuda/update.h"
#include "gluon/kernels/cuda/verdict.h"
#include "tests/kernels/fused_check.h"

namespace gluon::fused_check {
namespace {

using cuda::ElementType;

constexpr float kBeta = 0.95F;

// One device array of c matrices, every one `offset` entries past an aligned address, and the table of their addresses.
template <typename T, typename Pointer>
struct Table {
  Array<T> entries;
  Array<Pointer> pointers;
  size_t stride;
  Table(size_t count, size_t size, size_t offset)
      : entries(count * ((size + 15) / 8 * 8), offset), pointers(count), stride((size + 15) / 8 * 8) {
    std::vector<Pointer> addresses;
    for (size_t i = 0; i < count; ++i) addresses.push_back(entries.data() + i * stride);
    pointers.set(addresses);
  }
  void set(const std::vector<T>& values, size_t size) {
    std::vector<T> spread(entries.size(), rounded<T>(NAN));
    for (size_t i = 0; i < values.size(); ++i) spread[i / size * stride + i % size] = values[i];
    entries.set(spread);
  }
  std::vector<T> get(size_t count, size_t size) const {
    const std::vector<T> spread = entries.get();
    std::vector<T> values;
    for (size_t i = 0; i < count * size; ++i) values.push_back(spread[i / size * stride + i % size]);
    return values;
  }
};

std::string name_of(bool nesterov) { return nesterov ? "nesterov" : "ema"; }

template <typename T>
constexpr ElementType type_of() {
  return std::is_same_v<T, float>    ? ElementType::kFloat32
         : std::is_same_v<T, __half> ? ElementType::kFloat16
                                     : ElementType::kBFloat16;
}

// |x| of each matrix in float64.
template <typename T>
std::vector<double> lengths_of(const std::vector<T>& x, size_t size) {
  std::vector<double> lengths(x.size() / size);
  for (size_t i = 0; i < x.size(); ++i) lengths[i / size] += to_double(x[i]) * to_double(x[i]);
  for (double& length : lengths) length = std::sqrt(length);
  return lengths;
}

// A step's memory beside gradients and momentum.
struct Sums {
  Array<double> gradient, momentum;
  Array<cuda::ScalePair> scales;
  Array<cuda::Verdict> verdict{std::vector<cuda::Verdict>(1)};
  Sums(size_t count, size_t size)
      : gradient(count * cuda::gradient_partials(size)),
        momentum(count * cuda::momentum_partials(size)),
        scales(count) {}
  void place(cuda::MomentumStep& step) const {
    step.gradient_squares = gradient.data(), step.momentum_squares = momentum.data();
    step.scales = scales.data(), step.verdict = verdict.data();
  }
};

void measure_and_judge(const cuda::MomentumStep& step, const Sums& sums) {
  require(cuda::measure_momentum(step, nullptr), "measure_momentum");
  require(cuda::measure_gradients(&step, 1, sums.verdict.data(), nullptr), "measure_gradients");
  require(cuda::judge(&step, 1, sums.verdict.data(), nullptr, nullptr), "judge");
}

void check_momentum_case(size_t count, size_t size, size_t offset, bool nesterov, double magnitude) {
  const std::string what = "momentum " + name_of(nesterov) + " " + std::to_string(count) + "x" +
                           std::to_string(size) + " at " + std::to_string(magnitude) + " offset " +
                           std::to_string(offset);
  std::mt19937_64 random(size + count);
  std::vector<float> g = random_values<float>(count * size, magnitude, random);
  std::vector<float> m = random_values<float>(count * size, magnitude, random);
  if (count > 1) {  // one zero matrix
    std::fill_n(g.begin() + size, size, 0.0F);
    std::fill_n(m.begin() + size, size, 0.0F);
  }
  Table<float, const float*> gradients(count, size, offset);
  gradients.set(g, size);
  Array<float> momentum(count * size), weights(std::vector<float>{kBeta, 1 - kBeta});
  Array<__half> output(count * size);
  Sums sums(count, size);
  const float length = 3;
  cuda::MomentumStep step{.count = static_cast<int64_t>(count),
                          .size = static_cast<int64_t>(size),
                          .nesterov = nesterov,
                          .gradients = gradients.pointers.data(),
                          .momentum = momentum.data(),
                          .weights = weights.data(),
                          .length = length};
  sums.place(step);
  const auto run = [&] {
    momentum.set(m), output.poison(), sums.gradient.poison(), sums.momentum.poison();
    measure_and_judge(step, sums);
    expect(same_bits(m, momentum.get()), what + ": measuring changed the momentum");
    step.output = output.data();
    require(cuda::accumulate_momentum(&step, 1, nullptr), "accumulate_momentum");
    return output.get();
  };
  const std::vector<__half> got = run();
  const std::vector<float> kept = momentum.get();
  expect(same_bits(got, run()) && same_bits(kept, momentum.get()), what + ": two runs differ");
  expect(output.guard_intact() && momentum.guard_intact() && sums.gradient.guard_intact() &&
             sums.momentum.guard_intact() && sums.scales.guard_intact(),
         what + ": guard");

  std::vector<double> want_m, want_input;
  for (size_t i = 0; i < m.size(); ++i) {
    want_m.push_back(double{kBeta} * m[i] + double{1 - kBeta} * g[i]);
    want_input.push_back(nesterov ? double{kBeta} * kept[i] + double{1 - kBeta} * g[i] : kept[i]);
  }
  expect_close(kept, want_m, 1.2e-7, 1.5e-7 * magnitude + 2e-45, what + ": momentum");
  const std::vector<double> gradient_lengths = lengths_of(g, size), momentum_lengths = lengths_of(m, size);
  std::vector<double> want;
  for (size_t i = 0; i < m.size(); ++i) {
    const double gradient = gradient_lengths[i / size];
    double bound = double{kBeta} * momentum_lengths[i / size] + double{1 - kBeta} * gradient;
    if (nesterov) bound = double{kBeta} * bound + double{1 - kBeta} * gradient;
    want.push_back(bound == 0 ? 0 : want_input[i] * length / bound);
  }
  const double unit = 0x1p-11;
  // The input of denormal matrices has few bits itself.
  const double input_error = nesterov && magnitude < 1e-38 ? 2e-45 / magnitude : 0;
  expect_close(got, want, 1.01 * unit + 2e-6 + input_error, 0x1p-25 + (input_error + 2e-6) * largest(want),
               what + ": output");
  for (const double got_length : lengths_of(got, size)) {
    expect(got_length <= length * (1 + 2 * unit), what + ": longer than asked for");
  }
  const std::vector<double> carried = sums.momentum.get();
  require(cuda::measure_momentum(step, nullptr), "measure_momentum");
  expect(offset != 0 || same_bits(carried, sums.momentum.get()), what + ": squares are not kept up to date");
  momentum.set(m);
  step.output = nullptr;
  require(cuda::accumulate_momentum(&step, 1, nullptr), "accumulate_momentum");
  expect(same_bits(kept, momentum.get()), what + ": without an output");
}

template <typename D>
void check_update_case(size_t count, size_t size, size_t offset, double decay) {
  const std::string what = "update " + std::to_string(count) + "x" + std::to_string(size);
  std::mt19937_64 random(size);
  const std::vector<float> x = random_values<float>(count * size, 0.03, random);
  const std::vector<D> d = random_values<D>(count * size, 0.02, random);
  const std::vector<float> radii = random_values<float>(count, 0.1, random);
  Table<float, float*> parameters(count, size, offset);
  Array<D> directions(d);
  Array<float> t(radii);
  const cuda::ParameterUpdate update{.count = static_cast<int64_t>(count),
                                     .size = static_cast<int64_t>(size),
                                     .parameters = parameters.pointers.data(),
                                     .directions = directions.data(),
                                     .direction_type = type_of<D>(),
                                     .radii = t.data(),
                                     .direction_factor = -2,
                                     .decay = static_cast<float>(decay)};
  const auto run = [&] {
    parameters.set(x, size);
    require(cuda::update_parameters(update, nullptr), "update_parameters");
    return parameters.get(count, size);
  };
  const std::vector<float> got = run();
  expect(same_bits(got, run()), what + ": two runs differ");
  expect(parameters.entries.guard_intact(), what + ": guard");
  std::vector<double> want;
  for (size_t i = 0; i < x.size(); ++i) {
    const double radius = radii[i / size];
    want.push_back((1 - decay * radius) * x[i] - 2 * radius * to_double(d[i]));
  }
  expect_close(got, want, 2e-7, 1e-8, what);
}

void check_sign_case(size_t count, size_t size, size_t offset, bool nesterov, double magnitude) {
  const std::string what = "sign " + name_of(nesterov) + " " + std::to_string(count) + "x" +
                           std::to_string(size) + " at " + std::to_string(magnitude);
  std::mt19937_64 random(size);
  std::vector<float> g = random_values<float>(count * size, magnitude, random);
  std::vector<float> m = random_values<float>(count * size, magnitude, random);
  const std::vector<float> x = random_values<float>(count * size, 0.03, random), radii{0.5F, 0.25F, 3};
  for (size_t i = 0; i < m.size(); i += 7) m[i] = 0, g[i] = 0;
  Table<float, const float*> gradients(count, size, offset);
  gradients.set(g, size);
  Table<float, float*> parameters(count, size, offset);
  Array<float> momentum(count * size), weights(std::vector<float>{kBeta, 1 - kBeta}), t(radii);
  const cuda::SignUpdate update{.count = static_cast<int64_t>(count),
                                .size = static_cast<int64_t>(size),
                                .nesterov = nesterov,
                                .gradients = gradients.pointers.data(),
                                .momentum = momentum.data(),
                                .weights = weights.data(),
                                .parameters = parameters.pointers.data(),
                                .radii = t.data(),
                                .direction_factor = -0.01F,
                                .decay = 0.1F};
  const auto run = [&] {
    parameters.set(x, size), momentum.set(m);
    require(cuda::update_by_sign(update, nullptr), "update_by_sign");
    return parameters.get(count, size);
  };
  const std::vector<float> got = run(), kept = momentum.get();
  expect(same_bits(got, run()) && same_bits(kept, momentum.get()), what + ": two runs differ");
  expect(parameters.entries.guard_intact() && momentum.guard_intact(), what + ": guard");
  std::vector<double> want_m, want;
  for (size_t i = 0; i < m.size(); ++i) {
    const double radius = radii[i / size];
    want_m.push_back(double{kBeta} * m[i] + double{1 - kBeta} * g[i]);
    const double in = nesterov ? double{kBeta} * kept[i] + double{1 - kBeta} * g[i] : kept[i];
    const double sign = in > 0 ? 1 : in < 0 ? -1 : 0;
    want.push_back((1 - double{0.1F} * radius) * x[i] + double{-0.01F} * radius * sign);
  }
  expect_close(kept, want_m, 1.2e-7, 1.5e-7 * magnitude + 2e-45, what + ": momentum");
  expect_close(got, want, 3e-7, 3e-8, what + ": parameters");
}

// A bad gradient is found where it is, and nothing moves.
void check_verdict() {
  const size_t size = 3 * 4096, count = 3;
  std::mt19937_64 random(5);
  std::vector<float> g = random_values<float>(count * size, 1, random);
  const std::vector<float> m = random_values<float>(count * size, 1, random);
  Table<float, const float*> gradients(count, size, 0);
  Table<float, float*> parameters(count, size, 0);
  parameters.set(m, size);
  Array<float> momentum(count * size), weights(std::vector<float>{kBeta, 1 - kBeta}),
      radii(std::vector<float>(count, 1.0F));
  Array<__half> output(count * size);
  Sums sums(count, size);
  for (const float bad : {1.0F, NAN, -INFINITY}) {
    g[2 * size + 4097] = bad;
    gradients.set(g, size);
    momentum.set(m), output.set(std::vector<__half>(count * size, __float2half(0.5F)));
    cuda::MomentumStep step{.count = count,
                            .size = size,
                            .gradients = gradients.pointers.data(),
                            .momentum = momentum.data(),
                            .weights = weights.data()};
    sums.place(step);
    measure_and_judge(step, sums);
    step.output = output.data();
    require(cuda::accumulate_momentum(&step, 1, nullptr), "accumulate_momentum");
    require(cuda::update_parameters({.count = count,
                                     .size = size,
                                     .parameters = parameters.pointers.data(),
                                     .directions = output.data(),
                                     .radii = radii.data(),
                                     .verdict = sums.verdict.data()},
                                    nullptr),
            "update_parameters");
    require(cuda::update_by_sign({.count = count,
                                  .size = size,
                                  .gradients = gradients.pointers.data(),
                                  .momentum = momentum.data(),
                                  .weights = weights.data(),
                                  .parameters = parameters.pointers.data(),
                                  .radii = radii.data(),
                                  .verdict = sums.verdict.data()},
                                 nullptr),
            "update_by_sign");
    const bool finite = std::isfinite(bad);
    const int found = sums.verdict.get()[0].first_bad;
    expect(finite ? found == cuda::kAllFinite : found == 2,
           "verdict: " + std::to_string(found) + " for " + std::to_string(bad));
    expect(same_bits(momentum.get(), m) != finite, "verdict: momentum with " + std::to_string(bad));
    expect(same_bits(parameters.get(count, size), m) != finite,
           "verdict: parameters with " + std::to_string(bad));
    parameters.set(m, size);
  }
}

}  // namespace

void check_momentum() {
  check_verdict();
  Array<cuda::Verdict> verdict{std::vector<cuda::Verdict>(1)};
  cuda::MomentumStep empty{.count = 1, .size = 4};
  expect(cuda::measure_gradients(&empty, 1, verdict.data(), nullptr) == cudaErrorInvalidValue,
         "momentum: no pointers");
  empty.size = 0;
  expect(cuda::measure_gradients(&empty, 1, verdict.data(), nullptr) == cudaSuccess,
         "momentum: nothing to do");
  for (const bool nesterov : {false, true}) {
    for (const double magnitude : {1.0, 1e-30, 1e30, 1e-42}) {
      check_momentum_case(3, 768 * 64, 0, nesterov, magnitude);
      check_momentum_case(2, 4099, 0, nesterov, magnitude);
    }
    check_momentum_case(2, 5 * 4096 + 8, 0, nesterov, 1e-30);
    check_momentum_case(4, 15, 1, nesterov, 1);
    check_momentum_case(1, 1, 0, nesterov, 1);
    check_momentum_case(3, 96 * 100, 1, nesterov, 1e-3);
    check_momentum_case(2, 600 * 4096 + 4, 0, nesterov, 1);  // several tiles a partial sum
  }
}

void check_updates() {
  expect(cuda::update_parameters({.count = 1, .size = 4}, nullptr) == cudaErrorInvalidValue,
         "update: no pointers");
  expect(cuda::update_by_sign({.count = 1, .size = 4}, nullptr) == cudaErrorInvalidValue,
         "sign: no pointers");
  for (const auto& [count, size, offset] :
       {std::tuple{3, 64 * 768, 0}, {2, 4099, 0}, {1, 1, 0}, {5, 20, 1}}) {
    check_update_case<__half>(count, size, offset, 0.1);
    check_update_case<float>(count, size, offset, 0);
    check_update_case<bf16>(count, size, offset, 0);
    if (count > 3) continue;
    for (const bool nesterov : {false, true}) {
      check_sign_case(count, size, offset, nesterov, 1);
      check_sign_case(count, size, 1, nesterov, 1e-30);
      check_sign_case(count, size, offset, nesterov, 1e30);
    }
  }
}

}  // namespace gluon::fused_check
