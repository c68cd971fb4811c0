#include "gluon/update/initialize.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

#include "gluon/core/check.h"
#include "gluon/plan/step_plan.h"

namespace gluon {
namespace {

// FNV-1a: the stream of random numbers belongs to the name, not to the place in a list.
uint64_t name_seed(const std::string& name, uint64_t seed) {
  uint64_t hash = 14695981039346656037ULL ^ seed;
  for (const unsigned char c : name) hash = (hash ^ c) * 1099511628211ULL;
  return hash;
}

}  // namespace

void initialize(std::span<const Layer> layers, const Geometry& geometry, const InitializeOptions& options) {
  GLUON_CHECK(std::isfinite(options.ball) && options.ball > 0, "initialize: ball must be > 0, got ", options.ball);
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
      auto generator = at::detail::createCPUGenerator(name_seed(block.name, options.seed));
      const at::Tensor noise = at::randn({1, block.shape.rows, block.shape.cols}, generator, at::kDouble);
      target.copy_(batch.norm->lmo(noise).mul_(rule.ball.value_or(options.ball)).view(target.sizes()));
    }
  }
}

}  // namespace gluon
