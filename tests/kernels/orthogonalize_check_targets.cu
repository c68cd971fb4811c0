// Parameters moved by the last product, against the polar factors of the same call without targets.

#include <cstring>
#include <string>

#include "gluon/kernels/cuda/orthogonalize.h"
#include "tests/kernels/orthogonalize_support.cuh"

namespace {

using namespace gluon;
using namespace gluon::cuda;
using support::Buffer;

// X + t f D with both roundings of float32.
float moved(float x, float radius, float factor, __half direction) {
  const float move = factor * radius;
  const volatile float way = move * __half2float(direction);
  return x + way;
}

int check_shape(int count, int m, int n, int first_bad) {
  const int64_t size = int64_t(m) * n, all = size * count;
  const auto rows = polar_express_coefficients({.steps = 4, .lower = 5e-3});
  const OrthogonalizeOptions options{.coefficients = rows.data(), .steps = 4};
  const std::vector<double> values = support::gaussian(all, unsigned(m + n));
  std::vector<__half> input(all);
  std::vector<float> start(all), radii;
  for (int64_t i = 0; i < all; ++i) {
    input[i] = __float2half(float(values[i]) / std::sqrt(float(std::max(m, n))));
    start[i] = float(values[all - 1 - i]);
  }
  for (int i = 0; i < count; ++i) radii.push_back(0.02f * float(i + 1));
  Buffer<__half> x(input), output(all);
  Buffer<float> parameters(start), lengths(radii);
  std::vector<float*> addresses;
  for (int i = 0; i < count; ++i) addresses.push_back(parameters.get() + i * size);
  Buffer<float*> table(addresses);
  Buffer<Verdict> verdict(std::vector<Verdict>{{first_bad, 0, 0}});
  OrthogonalizeStack stack{.count = count,
                           .rows = m,
                           .columns = n,
                           .input = x.get(),
                           .row_stride = n,
                           .matrix_stride = size,
                           .output = {output.get(), n, size}};
  Buffer<char> workspace(int64_t(orthogonalize_workspace(&stack, 1, options)));
  CUDA_OK(orthogonalize(&stack, 1, options, workspace.get(), workspace.size(), nullptr));
  const std::vector<__half> directions = output.download();
  const float factor = -1.5f;
  stack.target = {
      .matrices = table.get(), .radii = lengths.get(), .factor = factor, .verdict = verdict.get()};
  CUDA_OK(orthogonalize(&stack, 1, options, workspace.get(), workspace.size(), nullptr));
  const std::vector<float> got = parameters.download();
  int64_t wrong = 0;
  for (int64_t i = 0; i < all; ++i) {
    const float want =
        first_bad == kAllFinite ? moved(start[i], radii[i / size], factor, directions[i]) : start[i];
    wrong += got[i] != want;
  }
  std::printf("targets       %d x %4d x %4d  %s  %lld of %lld entries wrong\n", count, m, n,
              first_bad == kAllFinite ? "moved   " : "left out", static_cast<long long>(wrong),
              static_cast<long long>(all));
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int check_targets() {
  int failures = 0;
  for (const int verdict : {kAllFinite, 0}) {
    failures += check_shape(3, 100, 192, verdict);
    failures += check_shape(2, 300, 64, verdict);
    failures += check_shape(1, 264, 576, verdict);
  }
  return failures;
}
