// config.toml: a TrainConfig as text, one line per field of the table (config_fields.h).
//
//   steps=400
//   data="a \"quoted\" name.txt"      with the escapes of TOML
//
// The reader also takes comments, 'literal' strings, strings without quotes, and 1 or 0 for true or false.

#pragma once

#include <filesystem>
#include <set>
#include <string>

#include "lab/train/config.h"

namespace gluon::lab {

/// Throws InputError on a string that is not UTF-8, which no TOML file can hold.
std::string config_toml(const TrainConfig& config);

/// Sets the fields that `text` names, except those in `keep`. Throws InputError that starts with `origin` and the line
/// on an unknown key, a key given twice, or a value that does not fit its field.
void parse_config_toml(const std::string& text, const std::string& origin, TrainConfig& config,
                       const std::set<std::string>& keep = {});

/// The same with the text of a file. Throws InputError also when there is no such file.
void read_config_toml(const std::filesystem::path& path, TrainConfig& config, const std::set<std::string>& keep = {});

/// The config of a run, with `out` set to its directory. Throws InputError when `run` holds none.
TrainConfig read_run_config(const std::filesystem::path& run);

}  // namespace gluon::lab
