// RadiusMultipliers: the factor on the radii of one step, one number for all layers times one for each group of layers
// (Layer::group), as torch's parameter groups have a learning rate each.

#pragma once

#include <cstdint>
#include <map>

#include "gluon/core/layer.h"

namespace gluon {

struct RadiusMultipliers {
  double all = 1;
  std::map<int64_t, double> groups{};  // 1 where it says nothing

  double of(const Layer& layer) const {
    const auto found = groups.find(layer.group);
    return found == groups.end() ? all : all * found->second;
  }
};

}  // namespace gluon
