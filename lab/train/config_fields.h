// The table of config fields: one row per setting of a run.
//
//   command line flags, config.toml, the agreement of ranks, the identity of a run (run_identity.h)
//   and the report all read this table; TrainConfig (config.h) has the defaults.
//
// A new setting is a member of TrainConfig and a row here.

#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <span>
#include <string>
#include <variant>

#include "lab/train/config.h"

namespace gluon::lab {

struct ConfigField {
  using Member = std::variant<std::string TrainConfig::*, int64_t TrainConfig::*, uint64_t TrainConfig::*,
                              double TrainConfig::*, bool TrainConfig::*>;

  const char* name;  // key in config.toml; "--" + name is the flag
  Member member;
  const char* group;  // heading of the flag in --help
  const char* help;
  // The part of the run identity that depends on it. None: it may change on --resume, as it says where the data is
  // (another description is a warning), when to stop, evaluate, save and sample, by how much to move from here on
  // (schedule), or how to compute, not what (device, precision, parts).
  const char* identity = "";
  bool local = false;  // may differ between ranks: a path on one machine
};

/// All fields, in the order of config.toml and --help.
std::span<const ConfigField> config_fields();

/// The value of a field as text; parses back to the same value.
std::string value_text(const TrainConfig& config, const ConfigField& field);

/// The inverse of value_text(). Throws InputError that starts with `origin` on text that is no value of the field's
/// type.
void set_value(TrainConfig& config, const ConfigField& field, const std::string& text, const std::string& origin);

/// The values that all ranks of a run must have in common, by name.
std::map<std::string, std::string> values_shared_by_ranks(const TrainConfig& config);

/// config.toml: one line per field.
///
///   steps=400
///   data="a \"quoted\" name.txt"      with the escapes of TOML
///
/// The reader also takes comments, 'literal' strings, strings without quotes, and 1 or 0 for true or false.
/// Throws InputError on a string that is not UTF-8, which no TOML file can hold.
std::string config_toml(const TrainConfig& config);

/// Sets the fields that `text` names, except those in `keep`. Where neither names a preset, the radius "auto" chooses
/// sphere, the one that has it. Throws InputError that starts with `origin` and the line on an unknown key, a key given
/// twice, or a value that does not fit its field.
void parse_config_toml(const std::string& text, const std::string& origin, TrainConfig& config,
                       const std::set<std::string>& keep = {});

/// The same with the text of a file. Throws InputError also when there is no such file.
void read_config_toml(const std::filesystem::path& path, TrainConfig& config, const std::set<std::string>& keep = {});

/// The config of a run, with `out` set to its directory. Throws InputError when `run` holds none.
TrainConfig read_run_config(const std::filesystem::path& run);

}  // namespace gluon::lab
