// Checkpoint: everything a run needs to go on bit for bit, by parameter name.
//
//   DIR/step-00000400.safetensors     tensors model/<name>, optimizer/<kind>/<name>, tensors/<name>;
//                                     metadata gluon.version, gluon.step, gluon.optimizer.{version, step}, text/<name>
//   DIR/latest                        the name of the newest complete file
//
// The newest two files are kept. A reader takes `latest`, and the one before it when the newest is damaged, saying so.
// Files of larger steps than `latest` are what a run that went back left behind: they count as the oldest.

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "gluon/update/state.h"

namespace gluon {

class Optimizer;

struct Checkpoint {
  static constexpr int64_t kVersion = 1;

  int64_t version = kVersion;
  int64_t step = 0;
  std::map<std::string, at::Tensor> model;  // parameters and buffers
  OptimizerState optimizer;
  std::map<std::string, at::Tensor> tensors;  // anything else that is a tensor, such as random states
  std::map<std::string, std::string> text;    // config and the like
};

/// Writes `checkpoint` into `directory` (made when missing), then drops all but the newest two. Atomic.
void save_checkpoint(const std::filesystem::path& directory, const Checkpoint& checkpoint);

/// Tries what save_checkpoint() will do, without the tensors: makes the directory, writes a file with all of
/// `checkpoint.text` and removes it. Throws InputError where save_checkpoint() would for another reason than space.
void try_checkpoint(const std::filesystem::path& directory, const Checkpoint& checkpoint);

struct LoadedCheckpoint {
  Checkpoint checkpoint;
  std::string warning;  // one sentence when the newest file was damaged and the one before it was taken
};

/// Whether `directory` has any, intact or not: a run killed before its first one may have left the folder.
bool has_checkpoint(const std::filesystem::path& directory);

/// The newest intact checkpoint of `directory`. Throws InputError when there is none, or when its version is not one that
/// this library knows.
LoadedCheckpoint load_checkpoint(const std::filesystem::path& directory);

/// The newest intact checkpoint of a step before `step`, for runs that may have to go back there; nothing without one.
std::optional<Checkpoint> load_checkpoint_before(const std::filesystem::path& directory, int64_t step);

/// Copies `values` into the tensors of `targets`, by name. Throws InputError, with nothing copied, on a missing or
/// unknown name, another shape or another dtype.
void restore_tensors(const std::map<std::string, at::Tensor>& values, const std::map<std::string, at::Tensor>& targets);

/// Writes an optimizer's state as one safetensors file, whole or not at all, for programs that keep their own
/// checkpoints: the tensors of OptimizerState by name and the metadata gluon.optimizer.version and
/// gluon.optimizer.step. With several ranks all of them call it together, and rank 0 writes. Throws InputError with the
/// path and the system's reason.
void save_optimizer(const std::filesystem::path& path, const Optimizer& optimizer);

/// Reads what save_optimizer() wrote, into an optimizer over the same layers, in any order, on any ranks. Throws
/// InputError, with nothing changed, when the file is damaged, is no optimizer state, or does not fit the layers.
void load_optimizer(const std::filesystem::path& path, Optimizer& optimizer);

}  // namespace gluon
