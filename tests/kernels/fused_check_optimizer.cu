// Momentum, parameter update and sign update against float64.

#include "gluon/kernels/cuda/momentum.h"
#include "gluon/kernels/cuda/sign_update.h"
#include "gluon/kernels/cuda/update.h"
#include "tests/kernels/fused_check.h"

namespace gluon::fused_check {
namespace {

using cuda::ElementType;
using cuda::MomentumInput;

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

std::string name_of(MomentumInput input) {
  return input == MomentumInput::kGradient   ? "gradient"
         : input == MomentumInput::kMomentum ? "ema"
                                             : "nesterov";
}

template <typename T>
constexpr ElementType type_of() {
  return std::is_same_v<T, float>    ? ElementType::kFloat32
         : std::is_same_v<T, __half> ? ElementType::kFloat16
                                     : ElementType::kBFloat16;
}

// Wanted: the output in float64 from the momentum the kernel wrote.
std::vector<double> normalized(const std::vector<double>& input, size_t size, double length) {
  std::vector<double> out(input.size());
  for (size_t start = 0; start < input.size(); start += size) {
    double sum = 0;
    for (size_t i = start; i < start + size; ++i) sum += input[i] * input[i];
    for (size_t i = start; i < start + size; ++i) out[i] = sum == 0 ? 0 : input[i] * length / std::sqrt(sum);
  }
  return out;
}

template <typename G, typename T>
void check_momentum_case(size_t count, size_t size, size_t offset, MomentumInput input, double magnitude) {
  const std::string what = "momentum " + name_of(input) + " " + std::to_string(count) + "x" +
                           std::to_string(size) + " at " + std::to_string(magnitude) + " offset " +
                           std::to_string(offset);
  std::mt19937_64 random(size + count);
  std::vector<G> g = random_values<G>(count * size, magnitude, random);
  std::vector<float> m = random_values<float>(count * size, magnitude, random);
  if (count > 1) {  // one zero matrix
    std::fill_n(g.begin() + size, size, rounded<G>(0));
    std::fill_n(m.begin() + size, size, 0.0F);
  }
  Table<G, const void*> gradients(count, size, offset);
  gradients.set(g, size);
  Array<float> momentum(count * size), weights(std::vector<float>{kBeta, 1 - kBeta}), norms(count);
  Array<T> output(count * size);
  Array<double> partials(count * cuda::momentum_partials(size));
  const cuda::MomentumStep step{.count = static_cast<int64_t>(count),
                                .size = static_cast<int64_t>(size),
                                .input = input,
                                .gradients = gradients.pointers.data(),
                                .gradient_type = type_of<G>(),
                                .momentum = momentum.data(),
                                .weights = weights.data(),
                                .partials = partials.data()};
  const float length = 1 / 1.01F;
  const auto run = [&] {
    momentum.set(m), output.poison(), partials.poison(), norms.poison();
    require(cuda::accumulate_momentum(step, nullptr), "accumulate_momentum");
    require(cuda::write_normalized_input(step, output.data(), type_of<T>(), length, norms.data(), nullptr),
            "write_normalized_input");
    return output.get();
  };
  const std::vector<T> got = run();
  const std::vector<float> kept = momentum.get(), lengths = norms.get();
  expect(same_bits(got, run()) && same_bits(kept, momentum.get()) && same_bits(lengths, norms.get()),
         what + ": two runs differ");
  expect(output.guard_intact() && momentum.guard_intact() && partials.guard_intact(), what + ": guard");

  std::vector<double> want_m, want_input;
  for (size_t i = 0; i < m.size(); ++i) {
    const double gradient = to_double(g[i]);
    want_m.push_back(input == MomentumInput::kGradient ? m[i]
                                                       : double{kBeta} * m[i] + double{1 - kBeta} * gradient);
    want_input.push_back(input == MomentumInput::kGradient ? gradient
                         : input == MomentumInput::kMomentum
                             ? kept[i]
                             : double{kBeta} * kept[i] + double{1 - kBeta} * gradient);
  }
  expect_close(kept, want_m, 1.2e-7, 1.5e-7 * magnitude + 2e-45, what + ": momentum");
  const std::vector<double> want = normalized(want_input, size, length);
  const double unit = type_of<T>() == ElementType::kFloat16    ? 0x1p-11
                      : type_of<T>() == ElementType::kBFloat16 ? 0x1p-8
                                                               : 4e-7;
  // The input of denormal matrices has few bits itself.
  const double input_error = input == MomentumInput::kNesterov && magnitude < 1e-38 ? 2e-45 / magnitude : 0;
  const double floor = type_of<T>() == ElementType::kFloat16 ? 0x1p-25 : 1e-38;
  expect_close(got, want, 1.01 * unit + input_error, floor + (input_error + 3e-7) * largest(want),
               what + ": output");
  std::vector<double> want_norms(count);
  for (size_t i = 0; i < want_input.size(); ++i) want_norms[i / size] += want_input[i] * want_input[i];
  for (double& norm : want_norms) norm = std::sqrt(norm);
  expect_close(lengths, want_norms, 3e-7 + input_error, 2e-45, what + ": norms");
}

template <typename D>
void check_update_case(size_t count, size_t size, size_t offset, bool copied, double decay) {
  const std::string what = "update " + std::to_string(count) + "x" + std::to_string(size);
  std::mt19937_64 random(size);
  const std::vector<float> x = random_values<float>(count * size, 0.03, random);
  const std::vector<D> d = random_values<D>(count * size, 0.02, random);
  const std::vector<float> radii = random_values<float>(count, 0.1, random);
  Table<float, float*> parameters(count, size, offset);
  Table<bf16, void*> copies(count, size, offset);
  Array<D> directions(d);
  Array<float> t(radii);
  const cuda::ParameterUpdate update{.count = static_cast<int64_t>(count),
                                     .size = static_cast<int64_t>(size),
                                     .parameters = parameters.pointers.data(),
                                     .copies = copied ? copies.pointers.data() : nullptr,
                                     .directions = directions.data(),
                                     .direction_type = type_of<D>(),
                                     .radii = t.data(),
                                     .direction_factor = -2,
                                     .decay = static_cast<float>(decay)};
  const auto run = [&] {
    parameters.set(x, size), copies.entries.poison();
    require(cuda::update_parameters(update, nullptr), "update_parameters");
    return parameters.get(count, size);
  };
  const std::vector<float> got = run();
  const std::vector<bf16> got_copies = copies.get(count, size);
  expect(same_bits(got, run()), what + ": two runs differ");
  expect(parameters.entries.guard_intact() && copies.entries.guard_intact(), what + ": guard");
  std::vector<double> want, want_copies;
  for (size_t i = 0; i < x.size(); ++i) {
    const double radius = radii[i / size];
    want.push_back((1 - decay * radius) * x[i] - 2 * radius * to_double(d[i]));
    want_copies.push_back(copied ? to_double(rounded<bf16>(got[i])) : NAN);
  }
  expect_close(got, want, 2e-7, 1e-8, what);
  expect_close(got_copies, want_copies, 0, 0, what + ": copies");
}

template <typename G>
void check_sign_case(size_t count, size_t size, size_t offset, MomentumInput input, double magnitude,
                     bool copied) {
  const std::string what = "sign " + name_of(input) + " " + std::to_string(count) + "x" +
                           std::to_string(size) + " at " + std::to_string(magnitude);
  std::mt19937_64 random(size);
  std::vector<G> g = random_values<G>(count * size, magnitude, random);
  std::vector<float> m = random_values<float>(count * size, magnitude, random);
  const std::vector<float> x = random_values<float>(count * size, 0.03, random), radii{0.5F, 0.25F, 3};
  for (size_t i = 0; i < m.size(); i += 7) m[i] = 0, g[i] = rounded<G>(0);
  Table<G, const void*> gradients(count, size, offset);
  gradients.set(g, size);
  Table<float, float*> parameters(count, size, offset);
  Table<bf16, void*> copies(count, size, offset);
  Array<float> momentum(count * size), weights(std::vector<float>{kBeta, 1 - kBeta}), t(radii);
  const cuda::SignUpdate update{.count = static_cast<int64_t>(count),
                                .size = static_cast<int64_t>(size),
                                .input = input,
                                .gradients = gradients.pointers.data(),
                                .gradient_type = type_of<G>(),
                                .momentum = momentum.data(),
                                .weights = weights.data(),
                                .parameters = parameters.pointers.data(),
                                .copies = copied ? copies.pointers.data() : nullptr,
                                .radii = t.data(),
                                .direction_factor = -0.01F,
                                .decay = 0.1F};
  const auto run = [&] {
    parameters.set(x, size), momentum.set(m), copies.entries.poison();
    require(cuda::update_by_sign(update, nullptr), "update_by_sign");
    return parameters.get(count, size);
  };
  const std::vector<float> got = run(), kept = momentum.get();
  const std::vector<bf16> got_copies = copies.get(count, size);
  expect(same_bits(got, run()) && same_bits(kept, momentum.get()), what + ": two runs differ");
  expect(parameters.entries.guard_intact() && momentum.guard_intact(), what + ": guard");
  std::vector<double> want_m, want, want_copies;
  for (size_t i = 0; i < m.size(); ++i) {
    const double gradient = to_double(g[i]), radius = radii[i / size];
    want_m.push_back(input == MomentumInput::kGradient ? m[i]
                                                       : double{kBeta} * m[i] + double{1 - kBeta} * gradient);
    const double in = input == MomentumInput::kGradient ? gradient
                      : input == MomentumInput::kMomentum
                          ? kept[i]
                          : double{kBeta} * kept[i] + double{1 - kBeta} * gradient;
    const double sign = in > 0 ? 1 : in < 0 ? -1 : 0;
    want.push_back((1 - double{0.1F} * radius) * x[i] + double{-0.01F} * radius * sign);
    want_copies.push_back(copied ? to_double(rounded<bf16>(got[i])) : NAN);
  }
  expect_close(kept, want_m, 1.2e-7, 1.5e-7 * magnitude + 2e-45, what + ": momentum");
  expect_close(got, want, 3e-7, 3e-8, what + ": parameters");
  expect_close(got_copies, want_copies, 0, 0, what + ": copies");
}

// One bad entry spoils its own matrix, visibly, and no other.
void check_bad_entry(float bad) {
  const size_t size = 2 * 4096 + 8;
  std::mt19937_64 random(3);
  std::vector<float> g = random_values<float>(2 * size, 1, random);
  g[size / 2] = bad;
  Table<float, const void*> gradients(2, size, 0);
  gradients.set(g, size);
  Array<__half> output(2 * size);
  Array<double> partials(2 * cuda::momentum_partials(size));
  const cuda::MomentumStep step{.count = 2,
                                .size = static_cast<int64_t>(size),
                                .input = MomentumInput::kGradient,
                                .gradients = gradients.pointers.data(),
                                .partials = partials.data()};
  require(cuda::accumulate_momentum(step, nullptr), "accumulate_momentum");
  require(cuda::write_normalized_input(step, output.data(), ElementType::kFloat16, 1, nullptr, nullptr),
          "write_normalized_input");
  const std::vector<__half> got = output.get();
  size_t spoiled = 0;
  for (size_t i = 0; i < got.size(); ++i)
    spoiled += std::isnan(to_double(got[i])) ? (i < size ? 1 : 2 * size) : 0;
  expect(spoiled == size,
         "momentum with a bad entry: " + std::to_string(spoiled) + " NaN of " + std::to_string(size));
}

}  // namespace

void check_momentum() {
  check_bad_entry(NAN);
  check_bad_entry(INFINITY);
  expect(cuda::accumulate_momentum({.count = 1, .size = 4}, nullptr) == cudaErrorInvalidValue,
         "momentum: no pointers");
  expect(cuda::accumulate_momentum({}, nullptr) == cudaSuccess, "momentum: nothing to do");
  for (const MomentumInput input :
       {MomentumInput::kGradient, MomentumInput::kMomentum, MomentumInput::kNesterov}) {
    for (const double magnitude : {1.0, 1e-30, 1e30, 1e-42}) {
      check_momentum_case<float, __half>(3, 768 * 64, 0, input, magnitude);
      check_momentum_case<float, __half>(2, 4099, 0, input, magnitude);
    }
    check_momentum_case<float, float>(2, 5 * 4096 + 8, 0, input, 1e-30);
    check_momentum_case<float, bf16>(4, 15, 1, input, 1);
    check_momentum_case<float, __half>(1, 1, 0, input, 1);
    check_momentum_case<bf16, __half>(3, 96 * 100, 0, input, 1);
    check_momentum_case<bf16, float>(3, 96 * 100, 1, input, 1e-3);
    check_momentum_case<float, __half>(2, 600 * 4096 + 4, 0, input, 1);  // several tiles a partial sum
  }
}

void check_updates() {
  expect(cuda::update_parameters({.count = 1, .size = 4}, nullptr) == cudaErrorInvalidValue,
         "update: no pointers");
  expect(cuda::update_by_sign({.count = 1, .size = 4}, nullptr) == cudaErrorInvalidValue,
         "sign: no pointers");
  for (const auto& [count, size, offset] :
       {std::tuple{3, 64 * 768, 0}, {2, 4099, 0}, {1, 1, 0}, {5, 20, 1}}) {
    check_update_case<__half>(count, size, offset, true, 0.1);
    check_update_case<float>(count, size, offset, false, 0);
    check_update_case<bf16>(count, size, offset, true, 0);
    for (const auto input : {MomentumInput::kGradient, MomentumInput::kMomentum, MomentumInput::kNesterov}) {
      if (count > 3) continue;
      check_sign_case<float>(count, size, offset, input, 1, true);
      check_sign_case<bf16>(count, size, 1, input, 1e-30, false);
      check_sign_case<float>(count, size, offset, input, 1e30, false);
    }
  }
}

}  // namespace gluon::fused_check
