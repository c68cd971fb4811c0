#include "gluon/checkpoint/checkpoint.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <iomanip>
#include <optional>
#include <string_view>
#include <vector>

#include "gluon/checkpoint/safetensors.h"
#include "gluon/core/atomic_file.h"
#include "gluon/core/check.h"
#include "gluon/update/optimizer.h"

namespace gluon {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kLatest = "latest";
constexpr std::string_view kFileStart = "step-";
constexpr std::size_t kKeptFiles = 2;

constexpr std::string_view kModel = "model/";
constexpr std::string_view kOptimizer = "optimizer/";
constexpr std::string_view kTensors = "tensors/";
constexpr std::string_view kText = "text/";
constexpr std::string_view kVersionKey = "gluon.version";
constexpr std::string_view kStepKey = "gluon.step";
constexpr std::string_view kOptimizerVersionKey = "gluon.optimizer.version";
constexpr std::string_view kOptimizerStepKey = "gluon.optimizer.step";

std::string file_name(int64_t step) { return join(kFileStart, std::setfill('0'), std::setw(8), step, ".safetensors"); }

// The step of a checkpoint's file name; nothing for any other name.
std::optional<int64_t> parse_file_name(const std::string& name) {
  if (!name.starts_with(kFileStart)) return std::nullopt;
  const int64_t step = std::strtoll(name.c_str() + kFileStart.size(), nullptr, 10);
  return file_name(step) == name ? std::optional(step) : std::nullopt;
}

std::vector<std::string> file_names(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator entry(directory, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  GLUON_CHECK(!error, "checkpoint: cannot list '", directory.string(), "': ", error.message());
  return names;
}

// Newest first, where `newest` is the step of the run's last checkpoint. Larger steps are what a run that went back
// left behind: they come last.
std::vector<int64_t> steps_newest_first(const std::vector<std::string>& names, std::optional<int64_t> newest) {
  std::vector<int64_t> steps;
  for (const std::string& name : names) {
    if (const auto step = parse_file_name(name)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end(), std::greater<>());
  if (newest) {
    std::stable_partition(steps.begin(), steps.end(), [&](int64_t step) { return step <= *newest; });
  }
  return steps;
}

// What killed writers left; files that are not ours stay.
void remove_temporaries(const fs::path& directory) {
  for (const std::string& name : file_names(directory)) {
    const std::string target = name.substr(0, name.find(kTemporaryMark));
    std::error_code ignored;
    if (target != name && (target == kLatest || parse_file_name(target))) fs::remove(directory / name, ignored);
  }
}

void remove_old_files(const fs::path& directory, int64_t newest) {
  const std::vector<int64_t> steps = steps_newest_first(file_names(directory), newest);
  for (std::size_t i = kKeptFiles; i < steps.size(); ++i) {
    // The new checkpoint is safe, and the next save tries again.
    std::error_code ignored;
    fs::remove(directory / file_name(steps[i]), ignored);
  }
}

template <typename Value>
void add_prefixed(std::string_view prefix, const std::map<std::string, Value>& from, std::map<std::string, Value>& to) {
  for (const auto& [name, value] : from) to.emplace(join(prefix, name), value);
}

TensorFile to_file(const Checkpoint& checkpoint) {
  TensorFile file;
  add_prefixed(kModel, checkpoint.model, file.tensors);
  add_prefixed(kOptimizer, checkpoint.optimizer.tensors, file.tensors);
  add_prefixed(kTensors, checkpoint.tensors, file.tensors);
  add_prefixed(kText, checkpoint.text, file.metadata);
  file.metadata.emplace(kVersionKey, std::to_string(checkpoint.version));
  file.metadata.emplace(kStepKey, std::to_string(checkpoint.step));
  file.metadata.emplace(kOptimizerVersionKey, std::to_string(checkpoint.optimizer.version));
  file.metadata.emplace(kOptimizerStepKey, std::to_string(checkpoint.optimizer.step));
  return file;
}

int64_t take_count(TensorFile& file, std::string_view key, const std::string& origin, const char* kind) {
  const auto entry = file.metadata.extract(std::string(key));
  GLUON_CHECK(entry, origin, "is not ", kind, ": its metadata has no '", key, "'");
  const std::string& text = entry.mapped();
  int64_t count = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  GLUON_CHECK(error == std::errc() && end == text.data() + text.size() && count >= 0, origin, "metadata '", key,
              "' must be a whole number >= 0, got '", text, "'");
  return count;
}

// Moves the entry into the map when its name has the prefix.
template <typename Value>
bool take_prefixed(std::string_view prefix, const std::string& name, const Value& value,
                   std::map<std::string, Value>& to) {
  return name.starts_with(prefix) && to.emplace(name.substr(prefix.size()), value).second;
}

// Of a file with a version unknown here only that is looked at.
Checkpoint read_checkpoint(const fs::path& path) {
  const std::string origin = join("checkpoint: '", path.string(), "' ");
  TensorFile file = read_safetensors(path);
  GLUON_CHECK(file.verified, origin, "has no checksum");
  Checkpoint checkpoint;
  const auto take = [&](std::string_view key) { return take_count(file, key, origin, "a checkpoint"); };
  checkpoint.version = take(kVersionKey);
  if (checkpoint.version < 1 || checkpoint.version > Checkpoint::kVersion) return checkpoint;
  checkpoint.step = take(kStepKey);
  checkpoint.optimizer.version = take(kOptimizerVersionKey);
  checkpoint.optimizer.step = take(kOptimizerStepKey);
  for (const auto& [name, tensor] : file.tensors) {
    GLUON_CHECK(take_prefixed(kModel, name, tensor, checkpoint.model) ||
                    take_prefixed(kOptimizer, name, tensor, checkpoint.optimizer.tensors) ||
                    take_prefixed(kTensors, name, tensor, checkpoint.tensors),
                origin, "tensor '", name, "' must start with ", kModel, ", ", kOptimizer, " or ", kTensors);
  }
  for (const auto& [name, value] : file.metadata) {
    GLUON_CHECK(take_prefixed(kText, name, value, checkpoint.text), origin, "metadata '", name, "' must start with ",
                kText);
  }
  return checkpoint;
}

// The content of `latest`; nothing when it is missing, as after a kill during the first save.
std::optional<std::string> read_latest(const fs::path& directory) {
  std::error_code error;
  if (!fs::is_regular_file(directory / kLatest, error)) return std::nullopt;  // a pipe would block
  std::ifstream in(directory / kLatest, std::ios::binary);
  std::string line;
  if (!in || !std::getline(in, line)) return std::nullopt;
  return line;
}

// Checks `checkpoint` and makes the directory, without what killed writers left in it.
void prepare_directory(const fs::path& directory, const Checkpoint& checkpoint) {
  GLUON_CHECK(checkpoint.version == Checkpoint::kVersion, "checkpoint: this library writes version ",
              Checkpoint::kVersion, ", got ", checkpoint.version);
  GLUON_CHECK(checkpoint.step >= 0 && checkpoint.optimizer.step >= 0 && checkpoint.optimizer.version >= 0,
              "checkpoint: steps and versions must be >= 0, got step ", checkpoint.step, ", optimizer step ",
              checkpoint.optimizer.step, " and version ", checkpoint.optimizer.version);
  std::error_code error;
  fs::create_directories(directory, error);
  GLUON_CHECK(!error, "checkpoint: cannot make '", directory.string(), "': ", error.message());
  remove_temporaries(directory);
}

}  // namespace

void try_checkpoint(const fs::path& directory, const Checkpoint& checkpoint) {
  prepare_directory(directory, checkpoint);
  const fs::path trial = directory / join(kLatest, kTemporaryMark, "trial");  // a kill leaves a temporary file
  Checkpoint without_tensors;
  without_tensors.step = checkpoint.step;
  without_tensors.text = checkpoint.text;
  write_safetensors(trial, to_file(without_tensors));
  fs::remove(trial);
}

void save_checkpoint(const fs::path& directory, const Checkpoint& checkpoint) {
  prepare_directory(directory, checkpoint);
  const std::string name = file_name(checkpoint.step);
  write_safetensors(directory / name, to_file(checkpoint));
  write_text_atomically(directory / kLatest, name + '\n');
  remove_old_files(directory, checkpoint.step);
}

bool has_checkpoint(const fs::path& directory) {
  if (!fs::exists(directory)) return false;
  const std::vector<std::string> names = file_names(directory);
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& name) { return name == kLatest || parse_file_name(name); });
}

LoadedCheckpoint load_checkpoint(const fs::path& directory) {
  std::error_code error;
  GLUON_CHECK(fs::is_directory(directory, error), "checkpoint: '", directory.string(), "' is not a directory");
  const std::vector<std::string> names = file_names(directory);
  const auto latest = read_latest(directory);
  const auto newest = latest ? parse_file_name(*latest) : std::nullopt;
  std::string reasons;
  if (latest && std::find(names.begin(), names.end(), *latest) == names.end()) {
    reasons = join("checkpoint: '", (directory / kLatest).string(), "' names '", *latest, "', which is not there");
  }
  const std::vector<int64_t> steps = steps_newest_first(names, newest);
  GLUON_CHECK(!steps.empty(), "checkpoint: '", directory.string(), "' holds no checkpoint, expected ", file_name(0),
              " or the like");
  for (const int64_t step : steps) {
    const fs::path path = directory / file_name(step);
    LoadedCheckpoint loaded;
    try {
      loaded.checkpoint = read_checkpoint(path);
    } catch (const InputError& damage) {
      reasons += join(reasons.empty() ? "" : "; ", damage.what());
      continue;
    }
    const int64_t version = loaded.checkpoint.version;
    GLUON_CHECK(version >= 1 && version <= Checkpoint::kVersion, "checkpoint: '", path.string(), "' has version ",
                version, ", this library reads versions 1 to ", Checkpoint::kVersion);
    if (!reasons.empty()) loaded.warning = join(reasons, "; '", path.string(), "' was taken instead");
    return loaded;
  }
  throw InputError(join("checkpoint: no intact checkpoint in '", directory.string(), "': ", reasons));
}

std::optional<Checkpoint> load_checkpoint_before(const fs::path& directory, int64_t step) {
  for (const int64_t earlier : steps_newest_first(file_names(directory), step)) {
    if (earlier >= step) continue;
    try {
      Checkpoint checkpoint = read_checkpoint(directory / file_name(earlier));
      if (checkpoint.version >= 1 && checkpoint.version <= Checkpoint::kVersion) return checkpoint;
    } catch (const InputError&) {  // damaged: the one before it may not be
    }
  }
  return std::nullopt;
}

void restore_tensors(const std::map<std::string, at::Tensor>& values,
                     const std::map<std::string, at::Tensor>& targets) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, target] : targets) {
    const auto value = values.find(name);
    GLUON_CHECK(value != values.end(), "restore_tensors: '", name, "' is missing");
    GLUON_CHECK(target.defined() && value->second.defined(), "restore_tensors: '", name, "' has no values");
    GLUON_CHECK(value->second.sizes() == target.sizes() && value->second.scalar_type() == target.scalar_type(),
                "restore_tensors: '", name, "' is ", value->second.sizes(), " ", value->second.scalar_type(),
                ", expected ", target.sizes(), " ", target.scalar_type());
  }
  for (const auto& [name, value] : values) {
    GLUON_CHECK(targets.count(name) == 1, "restore_tensors: '", name, "' is unknown here");
  }
  for (const auto& [name, target] : targets) target.copy_(values.at(name));
}

void save_optimizer(const fs::path& path, const Optimizer& optimizer) {
  OptimizerState state = optimizer.state();
  if (optimizer.options().collective->rank() > 0) return;
  write_safetensors(path, {.tensors = std::move(state.tensors),
                           .metadata = {{std::string(kOptimizerVersionKey), std::to_string(state.version)},
                                        {std::string(kOptimizerStepKey), std::to_string(state.step)}}});
}

void load_optimizer(const fs::path& path, Optimizer& optimizer) {
  TensorFile file = read_safetensors(path);
  const std::string origin = join("load_optimizer: '", path.string(), "' ");
  const auto take = [&](std::string_view key) { return take_count(file, key, origin, "an optimizer state"); };
  const int64_t version = take(kOptimizerVersionKey);
  optimizer.load_state({.version = version, .step = take(kOptimizerStepKey), .tensors = std::move(file.tensors)});
}

}  // namespace gluon
