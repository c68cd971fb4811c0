#include "gluon/update/state.h"

#include <ATen/ATen.h>

#include "gluon/core/check.h"

namespace gluon {

at::Tensor OptimizerState::find(const std::string& name, at::IntArrayRef sizes) const {
  const auto entry = tensors.find(name);
  GLUON_CHECK(entry != tensors.end(), "optimizer state: '", name, "' is missing");
  GLUON_CHECK(entry->second.sizes() == sizes, "optimizer state: '", name, "' has shape ", entry->second.sizes(),
              ", expected ", sizes);
  return entry->second;
}

}  // namespace gluon
