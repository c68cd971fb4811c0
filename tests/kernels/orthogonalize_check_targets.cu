// Parameters that the last product moves, against the polar factors of the same call without targets.

#include "gluon/kernels/cuda/orthogonalize.h"
#include "tests/kernels/kernel_check.h"
#include "tests/kernels/orthogonalize_reference.h"

namespace gluon::kernel_check {
namespace {

using namespace gluon::cuda;

// X + t f D with both roundings of float32.
float moved(float x, float radius, float factor, __half direction) {
  const volatile float step = factor * radius * __half2float(direction);
  return x + step;
}

void check_shape(int count, int m, int n, int first_bad) {
  const int64_t size = int64_t(m) * n, all = size * count;
  const auto rows = polar_express_coefficients({.steps = 4, .lower = 5e-3});
  const OrthogonalizeOptions options{.coefficients = rows.data(), .steps = 4};
  const std::vector<double> values = gaussian(all, unsigned(m + n));
  std::vector<__half> input(all);
  std::vector<float> start(all), radii;
  for (int64_t i = 0; i < all; ++i) {
    input[i] = __float2half(float(values[i]) / std::sqrt(float(std::max(m, n))));
    start[i] = float(values[all - 1 - i]);
  }
  for (int i = 0; i < count; ++i) radii.push_back(0.02f * float(i + 1));
  Array<__half> x(input), output(all);
  Array<float> parameters(start), lengths(radii);
  std::vector<float*> addresses;
  for (int i = 0; i < count; ++i) addresses.push_back(parameters.data() + i * size);
  Array<float*> table(addresses);
  Array<Verdict> verdict(std::vector<Verdict>{{first_bad, 0, 0}});
  OrthogonalizeStack stack{.count = count,
                           .rows = m,
                           .columns = n,
                           .input = x.data(),
                           .row_stride = n,
                           .matrix_stride = size,
                           .output = {output.data(), n, size}};
  Array<char> workspace(int64_t(orthogonalize_workspace(&stack, 1, options)));
  require(orthogonalize(&stack, 1, options, workspace.data(), workspace.size(), nullptr));
  const std::vector<__half> directions = output.get();
  const float factor = -1.5f;
  stack.target = {.matrices = table.data(), .radii = lengths.data(), .factor = factor, .verdict = verdict.data()};
  require(orthogonalize(&stack, 1, options, workspace.data(), workspace.size(), nullptr));
  const std::vector<float> got = parameters.get();
  int64_t wrong = 0;
  for (int64_t i = 0; i < all; ++i) {
    const float want = first_bad == kAllFinite ? moved(start[i], radii[i / size], factor, directions[i]) : start[i];
    wrong += got[i] != want;
  }
  expect(wrong == 0, join("targets ", count, "x", m, "x", n, first_bad == kAllFinite ? " moved" : " left out", ": ",
                          wrong, " of ", all, " entries are wrong"));
}

}  // namespace

void check_targets() {
  for (const int verdict : {kAllFinite, 0}) {
    check_shape(3, 100, 192, verdict);
    check_shape(2, 300, 64, verdict);
    check_shape(1, 264, 576, verdict);
  }
}

}  // namespace gluon::kernel_check
