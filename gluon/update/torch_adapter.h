// The bridge to torch::nn and torch::optim: layers of a module, and Gluon as a torch::optim::Optimizer so that an
// existing LibTorch training loop works unchanged.
//
//   gluon::TorchOptimizer optimizer(gluon::layers_of(*model), gluon::presets::unscion());
//   torch::optim::StepLR schedule(optimizer, 30, 0.1);       // its lr is the factor on all radii, 1 at the start
//   torch::save(optimizer, "optimizer.pt");                  // by parameter name

#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>

#include <string>
#include <utility>
#include <vector>

#include "gluon/update/optimizer.h"

namespace gluon {

/// Roles that cannot be read off a name: {"fc3.weight", Role::kHead}; the pattern is a glob.
using RoleOverrides = std::vector<std::pair<std::string, Role>>;

/// The trainable parameters of `module` as layers. Roles come from the module types (Embedding, Conv1d/2d/3d),
/// then from names (infer_role), unless an override matches. A parameter used twice (tied weights) is listed
/// once. Throws InputError when an override matches nothing.
std::vector<Layer> layers_of(const torch::nn::Module& module, const RoleOverrides& overrides = {});

/// Options of the one parameter group; lr multiplies every radius.
struct TorchOptimizerOptions : torch::optim::OptimizerCloneableOptions<TorchOptimizerOptions> {
  TORCH_ARG(double, lr) = 1;

 public:
  double get_lr() const override { return lr(); }
  void set_lr(const double value) override { lr(value); }
};

class TorchOptimizer : public torch::optim::Optimizer {
 public:
  TorchOptimizer(std::vector<Layer> layers, Geometry geometry, OptimizerOptions options = {});

  /// One step of gluon::Optimizer; with a closure, its loss is computed first and returned.
  torch::Tensor step(LossClosure closure = nullptr) override;

  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

  gluon::Optimizer& core() { return core_; }

 private:
  gluon::Optimizer core_;
};

}  // namespace gluon
