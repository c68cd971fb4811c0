#include "gluon/update/initialize.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

#include "gluon/core/check.h"
#include "gluon/lmo/safe_norm.h"
#include "gluon/plan/step_plan.h"

namespace gluon {
namespace {

// FNV-1a: the stream of random numbers belongs to the name, not to the place in a list.
uint64_t name_seed(const std::string& name, uint64_t seed) {
  uint64_t hash = 14695981039346656037ULL ^ seed;
  for (const unsigned char c : name) hash = (hash ^ c) * 1099511628211ULL;
  return hash;
}

// Gaussian, float64 (1, m, n).
at::Tensor noise_for(const Block& block, uint64_t seed) {
  auto generator = at::detail::createCPUGenerator(name_seed(block.name, seed));
  return at::randn({1, block.shape.rows, block.shape.cols}, generator, at::kDouble);
}

// `x` on the sphere |X|_F = radius. Zero stays zero.
at::Tensor on_sphere(const at::Tensor& x, double radius) {
  return safe_normalized(x.to(at::kDouble).reshape({1, 1, -1}), {1, 2}).mul_(radius);
}

}  // namespace

void initialize(std::span<const Layer> layers, const Geometry& geometry, const InitializeOptions& options) {
  GLUON_CHECK(std::isfinite(options.ball) && options.ball > 0, "initialize: ball must be > 0 and finite, got ",
              options.ball);
  const at::NoGradGuard no_grad;
  // Weights start as exact LMO directions.
  for (const StepPlan::Batch& batch : route(layers, geometry, {.orthogonalizer = "svd"}).batches) {
    const Rule& rule = geometry.rules()[batch.rule];
    for (const Block& block : batch.blocks) {
      const Layer& layer = block.layer;
      at::Tensor target = block.of(layer.parameter);
      if (layer.role == Role::kVector || layer.role == Role::kScalar) {
        if (layer.name.ends_with("bias")) target.zero_();
        continue;
      }
      const at::Tensor point = batch.norm->lmo(noise_for(block, options.seed));
      const at::Tensor start = rule.sphere ? on_sphere(point, rule.sphere->radius(*batch.norm, block.shape))
                                           : point * rule.ball.value_or(options.ball);
      target.copy_(start.view(target.sizes()));
    }
  }
}

void start_on_spheres(std::span<const Layer> layers, const Geometry& geometry, uint64_t seed) {
  const at::NoGradGuard no_grad;
  // As close to orthogonal as float32 is, in seconds for models whose SVDs take minutes.
  for (const StepPlan::Batch& batch : route(layers, geometry, {.orthogonalizer = "polar_express:8"}).batches) {
    const std::optional<Sphere>& sphere = geometry.rules()[batch.rule].sphere;
    if (!sphere) continue;
    for (const Block& block : batch.blocks) {
      at::Tensor target = block.of(block.layer.parameter);
      const bool zero = target.count_nonzero().item<int64_t>() == 0;
      const at::Tensor start = zero ? batch.norm->lmo(noise_for(block, seed).to(target.device(), at::kFloat)) : target;
      target.copy_(on_sphere(start, sphere->radius(*batch.norm, block.shape)).view(target.sizes()));
    }
  }
}

}  // namespace gluon
