#include "gluon/update/torch_optimizer.h"

#include <torch/utils.h>

#include "gluon/core/check.h"

namespace gluon {
namespace {

constexpr const char* kFixed =
    "TorchOptimizer: its layers are those given at construction; make a new one to add parameters";

std::vector<torch::Tensor> parameters_of(const std::vector<Layer>& layers) {
  std::vector<torch::Tensor> parameters;
  for (const Layer& layer : layers) parameters.push_back(layer.parameter);
  return parameters;
}

}  // namespace

TorchOptimizer::TorchOptimizer(std::vector<Layer> layers, Geometry geometry, OptimizerOptions options)
    : torch::optim::Optimizer({torch::optim::OptimizerParamGroup(parameters_of(layers))},
                              std::make_unique<TorchOptimizerOptions>()),
      core_(std::move(layers), std::move(geometry), std::move(options)) {}

torch::Tensor TorchOptimizer::step(LossClosure closure) {
  torch::Tensor loss;
  if (closure != nullptr) {
    const at::AutoGradMode enable_grad(true);
    loss = closure();
  }
  // torch's add_param_group() is not virtual: a caller that sees the base class gets past ours.
  GLUON_CHECK(param_groups().size() == 1 && param_groups()[0].params().size() == core_.layers().size(), kFixed);
  core_.set_radius_multiplier(param_groups()[0].options().get_lr());
  core_.step();
  return loss;
}

void TorchOptimizer::add_param_group(const torch::optim::OptimizerParamGroup&) { throw InputError(kFixed); }

void TorchOptimizer::add_parameters(const std::vector<torch::Tensor>&) { throw InputError(kFixed); }

// Archives cannot hold arbitrary names as keys, so the names are a list and the tensors are numbered.
void TorchOptimizer::save(torch::serialize::OutputArchive& archive) const {
  const OptimizerState state = core_.state();
  std::vector<std::string> names;
  for (const auto& [name, tensor] : state.tensors) {
    archive.write("tensor" + std::to_string(names.size()), tensor, /*is_buffer=*/true);
    names.push_back(name);
  }
  archive.write("version", torch::IValue(state.version));
  archive.write("step", torch::IValue(state.step));
  archive.write("lr", torch::IValue(param_groups()[0].options().get_lr()));
  archive.write("names", torch::IValue(names));
}

void TorchOptimizer::load(torch::serialize::InputArchive& archive) {
  torch::IValue version;
  torch::IValue step;
  torch::IValue lr;
  torch::IValue names;
  GLUON_CHECK(archive.try_read("version", version) && archive.try_read("step", step) && archive.try_read("lr", lr) &&
                  archive.try_read("names", names),
              "TorchOptimizer: the archive holds no Gluon optimizer");
  OptimizerState state;
  state.version = version.toInt();
  state.step = step.toInt();
  const auto list = names.toListRef();
  for (std::size_t i = 0; i < list.size(); ++i) {
    torch::Tensor tensor;
    archive.read("tensor" + std::to_string(i), tensor, /*is_buffer=*/true);
    state.tensors[list[i].toStringRef()] = tensor;
  }
  core_.load_state(state);
  param_groups()[0].options().set_lr(lr.toDouble());
}

}  // namespace gluon
