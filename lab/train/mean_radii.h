// What a run logs of its radii: their mean over the layers of each role.

#pragma once

#include <string>
#include <utility>
#include <vector>

#include "gluon/update/optimizer.h"

namespace gluon::lab {

/// By the names of the roles, of the last step. All ranks call it together.
std::vector<std::pair<std::string, double>> mean_radii(const Optimizer& optimizer);

}  // namespace gluon::lab
