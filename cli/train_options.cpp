#include "cli/train_options.h"

#include <set>
#include <string>
#include <type_traits>

#include "lab/train/config_fields.h"

namespace gluon::cli {
namespace {

std::string flag_of(const lab::ConfigField& field) { return std::string("--") + field.name; }

}  // namespace

void add_train_options(CLI::App& command, lab::TrainConfig& config) {
  for (const lab::ConfigField& field : lab::config_fields()) {
    const auto add = [&](auto member) -> CLI::Option* {
      // A switch that is off by default is a plain flag; one that is on takes a value: --cuda-graph false.
      if constexpr (std::is_same_v<decltype(member), bool lab::TrainConfig::*>) {
        if (!(lab::TrainConfig{}.*member)) return command.add_flag(flag_of(field), config.*member, field.help);
      }
      return command.add_option(flag_of(field), config.*member, field.help)->capture_default_str();
    };
    std::visit(add, field.member)->group(field.group);
  }
}

CLI::Validator given_path() {
  return {[](const std::string& path) { return path.empty() ? "expected a path, got an empty one" : ""; }, ""};
}

void read_config(const CLI::App& command, const std::filesystem::path& path, lab::TrainConfig& config) {
  std::set<std::string> given;
  for (const lab::ConfigField& field : lab::config_fields()) {
    if (command.get_option(flag_of(field))->count() > 0) given.insert(field.name);
  }
  if (path.empty()) {
    lab::parse_config_toml("", "", config, given);  // what the flags leave open
  } else {
    lab::read_config_toml(path, config, given);
  }
}

}  // namespace gluon::cli
