#include "gluon/update/torch_adapter.h"

#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/utils.h>

#include <algorithm>
#include <map>
#include <set>

#include "gluon/core/check.h"

namespace gluon {
namespace {

bool is_conv(const torch::nn::Module& module) {
  return module.as<torch::nn::Conv1d>() != nullptr || module.as<torch::nn::Conv2d>() != nullptr ||
         module.as<torch::nn::Conv3d>() != nullptr;
}

// What the module types say about the parameters called "<module>.weight".
std::map<std::string, Role> roles_by_module(const torch::nn::Module& module) {
  std::map<std::string, Role> roles;
  const auto note = [&](const std::string& name, const torch::nn::Module& part) {
    if (is_conv(part)) roles[name] = Role::kConv;
    if (part.as<torch::nn::Embedding>() != nullptr || part.as<torch::nn::EmbeddingBag>() != nullptr) {
      roles[name] = Role::kEmbedding;
    }
  };
  note("weight", module);
  for (const auto& child : module.named_modules("", /*include_self=*/false)) {
    note(child.key() + ".weight", *child.value());
  }
  return roles;
}

std::set<std::string> transposed_convolutions(const torch::nn::Module& module) {
  std::set<std::string> names;
  for (const auto& child : module.named_modules("", /*include_self=*/false)) {
    const torch::nn::Module& part = *child.value();
    if (part.as<torch::nn::ConvTranspose1d>() != nullptr ||
        part.as<torch::nn::ConvTranspose2d>() != nullptr ||
        part.as<torch::nn::ConvTranspose3d>() != nullptr) {
      names.insert(child.key() + ".weight");
    }
  }
  return names;
}

std::vector<torch::Tensor> parameters_of(const std::vector<Layer>& layers) {
  std::vector<torch::Tensor> parameters;
  for (const Layer& layer : layers) parameters.push_back(layer.parameter);
  return parameters;
}

}  // namespace

std::vector<Layer> layers_of(const torch::nn::Module& module, const RoleOverrides& overrides) {
  const std::map<std::string, Role> by_module = roles_by_module(module);
  const std::set<std::string> transposed = transposed_convolutions(module);
  std::vector<bool> used(overrides.size(), false);
  const auto role_of = [&](const std::string& name, at::IntArrayRef sizes) {
    const auto known = by_module.find(name);
    Role role = known != by_module.end() ? known->second : infer_role(name, sizes);
    bool overridden = false;
    for (std::size_t i = overrides.size(); i-- > 0;) {
      if (!glob_match(overrides[i].first, name)) continue;
      role = overrides[i].second;
      used[i] = overridden = true;
    }
    GLUON_CHECK(
        overridden || transposed.count(name) == 0, "layers_of: '", name,
        "' is a transposed convolution, stored as (in, out, ...), which no role flattens as (out, in ...); "
        "say with an override what it should count as");
    return role;
  };

  std::vector<Layer> layers;
  for (const auto& entry : module.named_parameters(/*recurse=*/true)) {
    if (!entry.value().requires_grad()) continue;
    const Role role = role_of(entry.key(), entry.value().sizes());
    const auto tied = std::find_if(layers.begin(), layers.end(), [&](const Layer& layer) {
      return layer.parameter.is_same(entry.value());
    });
    if (tied == layers.end()) {
      layers.push_back({entry.key(), entry.value(), role});
    } else if (role == Role::kEmbedding) {
      tied->role = role;  // a head tied to it came first in the list
    }
  }
  for (std::size_t i = 0; i < overrides.size(); ++i) {
    GLUON_CHECK(used[i], "layers_of: no trainable parameter matches '", overrides[i].first, "'");
  }
  return layers;
}

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
  GLUON_CHECK(
      param_groups().size() == 1 && param_groups()[0].params().size() == core_.layers().size(),
      "TorchOptimizer: its layers are those given at construction; a parameter or group was added later");
  core_.set_radius_multiplier(param_groups()[0].options().get_lr());
  core_.step();
  return loss;
}

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
  GLUON_CHECK(archive.try_read("version", version) && archive.try_read("step", step) &&
                  archive.try_read("lr", lr) && archive.try_read("names", names),
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
