// OptimizerState: everything an optimizer remembers between steps, by parameter name.
//
// Tensors are shaped as their parameters, so a state survives a change of batching, splitting, layer order or
// rank count. Names are "<kind>/<layer>": "momentum/blocks.0.attn.c_q.weight", "adamw.first/ln.weight".

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>

namespace gluon {

struct OptimizerState {
  static constexpr int64_t kVersion = 1;

  int64_t version = kVersion;
  int64_t step = 0;  // steps taken
  std::map<std::string, at::Tensor> tensors;

  /// The tensor called `name`. Throws InputError when it is missing or does not have these sizes.
  at::Tensor find(const std::string& name, at::IntArrayRef sizes) const;
};

}  // namespace gluon
