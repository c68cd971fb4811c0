// An optimizer's state as one safetensors file, for programs that keep their own checkpoints.
//
//   gluon::save_optimizer("optimizer.safetensors", optimizer);
//   gluon::load_optimizer("optimizer.safetensors", optimizer);      // the same layers, in any order, on any ranks
//
// The file holds the tensors of OptimizerState by name and the metadata gluon.optimizer.version and
// gluon.optimizer.step. Whole checkpoints with a model's weights are in checkpoint.h.

#pragma once

#include <filesystem>

#include "gluon/update/optimizer.h"

namespace gluon {

/// Writes the state, whole or not at all. With several ranks all of them call it together, and rank 0 writes. Throws
/// InputError with the path and the system's reason.
void save_optimizer(const std::filesystem::path& path, const Optimizer& optimizer);

/// Reads what save_optimizer() wrote. Throws InputError, with nothing changed, when the file is damaged, is no optimizer
/// state, or does not fit the layers.
void load_optimizer(const std::filesystem::path& path, Optimizer& optimizer);

}  // namespace gluon
