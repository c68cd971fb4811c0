#include "gluon/update/layers_of.h"

#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>

#include <algorithm>
#include <map>
#include <set>

#include "gluon/core/check.h"
#include "gluon/geometry/geometry.h"

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
    if (part.as<torch::nn::ConvTranspose1d>() != nullptr || part.as<torch::nn::ConvTranspose2d>() != nullptr ||
        part.as<torch::nn::ConvTranspose3d>() != nullptr) {
      names.insert(child.key() + ".weight");
    }
  }
  return names;
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
    GLUON_CHECK(overridden || transposed.count(name) == 0, "layers_of: '", name,
                "' is a transposed convolution, stored as (in, out, ...), which no role flattens as (out, in ...); "
                "say with an override what it should count as");
    return role;
  };

  std::vector<Layer> layers;
  for (const auto& entry : module.named_parameters(/*recurse=*/true)) {
    if (!entry.value().requires_grad()) continue;
    const Role role = role_of(entry.key(), entry.value().sizes());
    const auto tied = std::find_if(layers.begin(), layers.end(),
                                   [&](const Layer& layer) { return layer.parameter.is_same(entry.value()); });
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

}  // namespace gluon
