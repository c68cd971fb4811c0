// The mean radius over the layers of each role, for the log.

#pragma once

#include <string>
#include <utility>
#include <vector>

#include "gluon/update/optimizer.h"

namespace gluon::lab {

/// The means of the last step by role name. All ranks call it together.
std::vector<std::pair<std::string, double>> mean_radii(const Optimizer& optimizer);

}  // namespace gluon::lab
