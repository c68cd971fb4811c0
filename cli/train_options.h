// The flags of a training run, shared by the commands that train; a config file has the same keys.

#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>

#include "lab/train/config.h"

namespace gluon::cli {

/// Adds one flag per row of the table of config fields (lab/train/config_fields.h).
void add_train_options(CLI::App& command, lab::TrainConfig& config);

/// Refuses an empty path, as "$UNSET" gives it.
CLI::Validator given_path();

/// Completes `config`, which has the flags of `command`, from the TOML file; without one (an empty path) the flags decide
/// alone. Throws InputError as lab::read_config_toml() does.
void read_config(const CLI::App& command, const std::filesystem::path& path, lab::TrainConfig& config);

}  // namespace gluon::cli
