// Steps on spheres, along normalised directions and with cautious decay, against float64.

#include <tuple>

#include "gluon/kernels/cuda/step_factors.h"
#include "tests/kernels/step_memory.h"

namespace gluon::kernel_check {
namespace {

// A rule that asks for more than a radius: a normalised direction, a sphere, a cautious decay.
struct Shaped {
  cuda::SecondMoments::Kind moments;
  double sphere, decay;
  bool cautious;
};

constexpr double kFactor = 3, kUnit = 0.05, kSecondBeta = 0.75;

double sum_of_products(const Vector& a, const Vector& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Normalize::heading() in float64 for the direction -kFactor d; folds it into v.
Vector heading_of(const Vector& d, Vector& v, size_t columns, cuda::SecondMoments::Kind kind) {
  using Kind = cuda::SecondMoments::Kind;
  Vector heading;
  for (const double x : d) heading.push_back(-kFactor * x);
  if (kind == Kind::kNone) return heading;
  const double before = sum_of_products(heading, heading);
  const size_t width = kind == Kind::kRows ? columns : 1;
  for (size_t i = 0; i < v.size(); ++i) {
    double mean = 0;
    for (size_t j = i * width; j < (i + 1) * width; ++j) mean += std::pow(d[j] / kUnit, 2) / static_cast<double>(width);
    v[i] = kSecondBeta * v[i] + (1 - kSecondBeta) * mean;
    for (size_t j = i * width; j < (i + 1) * width; ++j) heading[j] = v[i] == 0 ? 0 : heading[j] / std::sqrt(v[i]);
  }
  const double after = sum_of_products(heading, heading);
  for (double& x : heading) x *= after == 0 ? 0 : std::sqrt(before / after);
  return heading;
}

// update/sphere_step.h, or decay and step, in float64.
Vector moved_by(const Vector& x, const Vector& u, double t, const Shaped& shaped) {
  Vector moved;
  const double length = std::sqrt(sum_of_products(x, x)), reach = std::sqrt(sum_of_products(u, u));
  const double cosine = length * reach == 0 ? 0 : sum_of_products(x, u) / (length * reach);
  const double q = std::sqrt((length > 0 ? 1 + 2 * cosine * t : 0) + t * t);
  for (size_t i = 0; i < x.size(); ++i) {
    if (shaped.sphere > 0) {
      const double from = length == 0 ? 0 : x[i] / length;
      moved.push_back(reach == 0 || t == 0 ? x[i] : shaped.sphere * (from + t * u[i] / reach) / q);
    } else {
      const bool keeps = shaped.cautious && x[i] * u[i] > 0;
      moved.push_back((keeps ? 1 : 1 - shaped.decay * t) * x[i] + t * u[i]);
    }
  }
  return moved;
}

// The second matrix has a direction of zeros, the third one zeros as weights.
void check_shaped_case(size_t rows, size_t columns, size_t offset, const Shaped& shaped) {
  using Kind = cuda::SecondMoments::Kind;
  const size_t count = 4, size = rows * columns, moments = shaped.moments == Kind::kRows ? rows : size;
  const std::string what = join("shaped ", rows, "x", columns, " moments ", static_cast<int>(shaped.moments),
                                " sphere ", shaped.sphere, " decay ", shaped.decay, shaped.cautious ? " cautious" : "");
  std::mt19937_64 random(size);
  std::vector<float> x = random_values<float>(count * size, 0.03, random);
  std::vector<__half> d = random_values<__half>(count * size, 0.05, random);
  std::fill_n(d.begin() + size, size, __half(0.0F));
  std::fill_n(x.begin() + 2 * size, size, 0.0F);
  const std::vector<float> radii{0.1F, 0.2F, 0.05F, 0};
  std::vector<float> v = random_values<float>(count * moments, 1, random);
  for (float& value : v) value *= value;
  std::fill_n(v.begin() + moments, moments, 0.0F);
  StepMemory memory(count, size, offset);
  Array<float> second(v.size());
  Array<cuda::StepFactors> factors(count);
  memory.radii.set(radii), memory.output.set(d), memory.decay.set({static_cast<float>(shaped.decay)});
  memory.step.verdict = nullptr;
  memory.update.direction_factor = -kFactor, memory.update.cautious = shaped.cautious;
  memory.update.second = {.kind = shaped.moments,
                          .values = second.data(),
                          .columns = static_cast<int64_t>(columns),
                          .beta = kSecondBeta,
                          .unit = kUnit};
  Array<double> lengths(2 * count * cuda::direction_partials(memory.update.second, size) + 1);
  Array<double> spheres(3 * count * cuda::sphere_partials(size));
  const cuda::StepSums sums{shaped.moments == Kind::kNone ? nullptr : lengths.data(),
                            shaped.sphere == 0 ? nullptr : spheres.data()};
  const auto run = [&] {
    memory.parameters.set(x), second.set(v), poison(lengths, spheres, factors);
    memory.update.factors = nullptr;
    if (sums.directions != nullptr) {
      require(cuda::fold_directions(memory.step, memory.output.data(), memory.update.second, sums.directions, nullptr));
    }
    if (sums.spheres != nullptr) {
      require(cuda::measure_spheres(memory.step, memory.output.data(), memory.update, sums.spheres, nullptr));
    }
    if (sums.directions != nullptr || sums.spheres != nullptr) {
      require(cuda::make_factors(memory.step, memory.update, sums, shaped.sphere, factors.data(), nullptr));
      memory.update.factors = factors.data();
    }
    memory.move(nullptr);
  };
  expect_repeatable(what, run, memory.parameters.entries(), second, factors, lengths, spheres);
  Vector want, kept;
  for (size_t i = 0; i < count; ++i) {
    const auto part = [&](const auto& all, size_t length) {
      return doubles(std::vector(all.begin() + i * length, all.begin() + (i + 1) * length));
    };
    Vector mine = part(v, moments);
    const Vector u = heading_of(part(d, size), mine, columns, shaped.moments);
    for (const double entry : moved_by(part(x, size), u, radii[i], shaped)) want.push_back(entry);
    kept.insert(kept.end(), mine.begin(), mine.end());
  }
  expect_close(memory.parameters.get(), want, 1e-6, 1e-7, what);
  if (shaped.moments != Kind::kNone) expect_close(second.get(), kept, 1e-6, 1e-30, what + ": second moments");
}

}  // namespace

void check_step_factors() {
  using Kind = cuda::SecondMoments::Kind;
  const cuda::MomentumStep some{.count = 1, .size = 4};
  expect(cuda::fold_directions(some, nullptr, {}, nullptr, nullptr) == cudaErrorInvalidValue, "fold: no pointers");
  expect(cuda::measure_spheres(some, nullptr, {}, nullptr, nullptr) == cudaErrorInvalidValue, "spheres: no pointers");
  expect(cuda::make_factors(some, {}, {}, 1, nullptr, nullptr) == cudaErrorInvalidValue, "factors: no pointers");
  for (const Kind kind : {Kind::kNone, Kind::kRows, Kind::kEntries}) {
    for (const auto& [rows, columns, offset] : {std::tuple{96, 136, 0}, {20, 8, 0}, {7, 5, 1}, {3, 4099, 0}}) {
      for (const Shaped& shaped : {Shaped{kind, 0, 0, false}, {kind, 0, 0.1, true}, {kind, 2.5, 0, false}}) {
        check_shaped_case(rows, columns, offset, shaped);
      }
    }
  }
}

}  // namespace gluon::kernel_check
