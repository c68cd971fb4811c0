// The flags of a training run, shared by the commands that train or open a run; a config file has the same keys.

#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <set>
#include <string>

#include "lab/train/config.h"

namespace gluon::cli {

/// Adds one flag per field of `config`.
void add_train_options(CLI::App& command, lab::TrainConfig& config);

/// Sets the options of `command` that were not given as flags from the TOML file. Throws InputError with the file's
/// name on a key that is no flag or a value that does not fit. Keys in `ignored` are passed over.
void read_config(CLI::App& command, const std::filesystem::path& path,
                 const std::set<std::string>& ignored = {});

/// All keys and values of `config`, as a config file has them.
std::string config_text(const lab::TrainConfig& config);

/// The config of a run, from its config.toml.
lab::TrainConfig config_of_run(const std::filesystem::path& run);

}  // namespace gluon::cli
