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

// Roles of parameters, and which overrides gave some.
class Roles {
 public:
  Roles(const torch::nn::Module& module, const RoleOverrides& overrides)
      : by_module_(roles_by_module(module)), overrides_(overrides), used_(overrides.size(), false) {}

  Role of(const std::string& name, const at::Tensor& parameter) {
    if (const auto role = overridden(name, parameter)) return *role;
    const auto known = by_module_.find(name);
    if (known == by_module_.end()) return infer_role(name, parameter.sizes());
    // A frozen one does not move, so that its role does not matter.
    GLUON_CHECK(known->second || !parameter.requires_grad(), "layers_of: '", name,
                "' is a transposed convolution, stored as (in, out, ...), which no role flattens as (out, in ...); "
                "say with an override what it should count as");
    return known->second.value_or(Role::kConv);
  }

  bool overrides(const std::string& name) const {
    return std::any_of(overrides_.begin(), overrides_.end(),
                       [&](const auto& entry) { return glob_match(entry.first, name); });
  }

  void check_all_used() const {
    for (std::size_t i = 0; i < overrides_.size(); ++i) {
      GLUON_CHECK(used_[i], "layers_of: no trainable parameter matches '", overrides_[i].first, "'");
    }
  }

 private:
  std::optional<Role> overridden(const std::string& name, const at::Tensor& parameter) {
    std::optional<Role> role;
    for (std::size_t i = overrides_.size(); i-- > 0;) {
      if (!glob_match(overrides_[i].first, name)) continue;
      role = overrides_[i].second;
      if (parameter.requires_grad()) used_[i] = true;
    }
    return role;
  }

  std::map<std::string, std::optional<Role>> by_module_;
  const RoleOverrides& overrides_;
  std::vector<bool> used_;
};

}  // namespace

std::vector<Layer> layers_of(const torch::nn::Module& module, const RoleOverrides& overrides) {
  Roles roles(module, overrides);
  std::vector<Layer> layers;
  for (const auto& entry : module.named_parameters(/*recurse=*/true)) {
    const Role role = roles.of(entry.key(), entry.value());
    const auto tied = std::find_if(layers.begin(), layers.end(),
                                   [&](const Layer& layer) { return layer.parameter.is_same(entry.value()); });
    if (tied == layers.end()) {
      layers.push_back({entry.key(), entry.value(), role});
    } else if (role == Role::kEmbedding) {
      tied->role = role;  // a head tied to it came first in the list
    }
  }
  roles.check_all_used();
  // Frozen layers are looked at as well: a head is one beside a frozen embedding too.
  const auto head = find_head(layers);
  if (head && !roles.overrides(layers[*head].name)) layers[*head].role = Role::kHead;
  std::erase_if(layers, [](const Layer& layer) { return !layer.parameter.requires_grad(); });
  return layers;
}

}  // namespace gluon
