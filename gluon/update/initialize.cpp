#include "gluon/update/initialize.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

#include "gluon/core/check.h"

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
  GLUON_CHECK(std::isfinite(options.ball) && options.ball > 0, "initialize: ball must be > 0, got ",
              options.ball);
  const at::NoGradGuard no_grad;
  const std::vector<std::size_t> assignment = geometry.assign(layers);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const Rule& rule = geometry.rules()[assignment[i]];
    if (rule.norm.is_adamw()) continue;
    for (const Block& block : split_blocks(layers[i], rule.split)) {
      at::Tensor target = block.of(block.layer.parameter);
      if (layers[i].role == Role::kVector || layers[i].role == Role::kScalar) {
        if (layers[i].name.ends_with("bias")) target.zero_();
        continue;
      }
      auto generator = at::detail::createCPUGenerator(name_seed(block.name, options.seed));
      const at::Tensor noise = at::randn({1, block.shape.rows, block.shape.cols}, generator, at::kDouble);
      const NormPtr norm = rule.norm.resolve(block.shape, "svd");
      target.copy_(norm->lmo(noise).mul_(rule.ball.value_or(options.ball)).view(target.sizes()));
    }
  }
}

}  // namespace gluon
