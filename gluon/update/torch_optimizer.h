// TorchOptimizer: Gluon as a torch::optim::Optimizer, so that an existing LibTorch training loop works unchanged. It
// includes torch's own headers, which take long to compile, and so is not part of gluon/gluon.h.
//
//   gluon::TorchOptimizer optimizer(gluon::layers_of(*model), gluon::presets::unscion());
//   torch::optim::StepLR schedule(optimizer, 30, 0.1);       // its lr is the factor on all radii, 1 at the start
//   torch::save(optimizer, "optimizer.pt");                  // by parameter name

#pragma once

#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>

#include <vector>

#include "gluon/update/layers_of.h"
#include "gluon/update/optimizer.h"

namespace gluon {

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

  /// Throws InputError: the layers are those given at construction.
  void add_param_group(const torch::optim::OptimizerParamGroup& group);
  void add_parameters(const std::vector<torch::Tensor>& parameters);

 private:
  gluon::Optimizer core_;
};

}  // namespace gluon
