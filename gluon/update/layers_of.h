// layers_of: the parameters of a torch::nn module as layers, with the roles that its submodules and names suggest.

#pragma once

#include <string>
#include <utility>
#include <vector>

#include "gluon/core/layer.h"

namespace torch::nn {
class Module;
}

namespace gluon {

/// Roles that cannot be read off a name: {"fc3.weight", Role::kHead}; the pattern is a glob.
using RoleOverrides = std::vector<std::pair<std::string, Role>>;

/// The trainable parameters of `module` as layers. Roles come from the module types (Embedding, Conv1d/2d/3d),
/// then from names (infer_role) and shapes (find_head), unless an override matches. A parameter used twice (tied
/// weights) is listed once. Throws InputError when an override matches nothing.
std::vector<Layer> layers_of(const torch::nn::Module& module, const RoleOverrides& overrides = {});

}  // namespace gluon
