#include "gluon/update/layers_of.h"

#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>

#include <algorithm>
#include <map>
#include <optional>

#include "gluon/core/check.h"
#include "gluon/geometry/geometry.h"

namespace gluon {
namespace {

template <typename... Modules> bool is_any(const torch::nn::Module& module) {
  return (... || (module.as<Modules>() != nullptr));
}

// What the module types say about the parameters called "<module>.weight"; nothing for a transposed convolution.
std::map<std::string, std::optional<Role>> roles_by_module(const torch::nn::Module& module) {
  using namespace torch::nn;
  std::map<std::string, std::optional<Role>> roles;
  const auto note = [&](const std::string& name, const Module& part) {
    if (is_any<Conv1d, Conv2d, Conv3d>(part)) roles[name] = Role::kConv;
    if (is_any<Embedding, EmbeddingBag>(part)) roles[name] = Role::kEmbedding;
    if (is_any<ConvTranspose1d, ConvTranspose2d, ConvTranspose3d>(part)) roles[name] = std::nullopt;
  };
  note("weight", module);
  for (const auto& child : module.named_modules("", /*include_self=*/false)) {
    note(child.key() + ".weight", *child.value());
  }
  return roles;
}

}  // namespace

std::vector<Layer> layers_of(const torch::nn::Module& module, const RoleOverrides& overrides) {
  const auto by_module = roles_by_module(module);
  std::vector<bool> used(overrides.size(), false);
  const auto role_of = [&](const std::string& name, at::IntArrayRef sizes) {
    const auto known = by_module.find(name);
    std::optional<Role> role = known != by_module.end() ? known->second : infer_role(name, sizes);
    for (std::size_t i = overrides.size(); i-- > 0;) {
      if (!glob_match(overrides[i].first, name)) continue;
      role = overrides[i].second;
      used[i] = true;
    }
    GLUON_CHECK(role, "layers_of: '", name,
                "' is a transposed convolution, stored as (in, out, ...), which no role flattens as (out, in ...); "
                "say with an override what it should count as");
    return *role;
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
