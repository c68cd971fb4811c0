#include "gluon/checkpoint/save_optimizer.h"

#include "gluon/checkpoint/safetensors.h"
#include "gluon/core/check.h"
#include "gluon/core/spec.h"

namespace gluon {
namespace {

constexpr const char* kVersionKey = "gluon.optimizer.version";
constexpr const char* kStepKey = "gluon.optimizer.step";

int64_t read_count(const TensorFile& file, const char* key, const std::filesystem::path& path) {
  const auto entry = file.metadata.find(key);
  GLUON_CHECK(entry != file.metadata.end(), "load_optimizer: '", path.string(),
              "' holds no optimizer state: the metadata '", key, "' is missing");
  return parse_integer(entry->second, join("load_optimizer: '", path.string(), "': ", key));
}

}  // namespace

void save_optimizer(const std::filesystem::path& path, const Optimizer& optimizer) {
  OptimizerState state = optimizer.state();
  if (optimizer.options().collective->rank() > 0) return;
  write_safetensors(
      path, {.tensors = std::move(state.tensors),
             .metadata = {{kVersionKey, std::to_string(state.version)}, {kStepKey, std::to_string(state.step)}}});
}

void load_optimizer(const std::filesystem::path& path, Optimizer& optimizer) {
  TensorFile file = read_safetensors(path);
  optimizer.load_state({.version = read_count(file, kVersionKey, path),
                        .step = read_count(file, kStepKey, path),
                        .tensors = std::move(file.tensors)});
}

}  // namespace gluon
