#include "lab/train/config_toml.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

#include "gluon/core/check.h"
#include "lab/train/config_fields.h"
#include "lab/train/run_directory.h"

namespace gluon::lab {
namespace {

constexpr const char* kBlank = " \t\r";

std::string_view trim(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

// A basic string of TOML has the escapes of JSON.
std::string quoted(const std::string& value, const char* key) {
  try {
    return nlohmann::json(value).dump();
  } catch (const nlohmann::json::type_error&) {
    throw InputError(join("--", key, ": expected text in UTF-8, got '", value, "'"));
  }
}

// The characters at the start of `text` up to the quote that ends its string, both quotes included.
std::string_view string_token(std::string_view text, const std::string& origin) {
  const char quote = text.front();
  std::size_t end = 1;
  while (end < text.size() && text[end] != quote) end += quote == '"' && text[end] == '\\' ? 2 : 1;
  GLUON_CHECK(end < text.size(), origin, ": the string ", text, " has no closing quote");
  return text.substr(0, end + 1);
}

std::string decoded(std::string_view token, const std::string& origin) {
  if (token.front() == '\'') return std::string(token.substr(1, token.size() - 2));
  const nlohmann::json value = nlohmann::json::parse(token, nullptr, /*allow_exceptions=*/false);
  GLUON_CHECK(value.is_string(), origin, ": expected UTF-8 text with the escapes of TOML, got ", token);
  return value;
}

std::string parse_value(std::string_view text, const std::string& origin) {
  if (!text.starts_with('"') && !text.starts_with('\'')) {
    return std::string(trim(text.substr(0, text.find('#'))));
  }
  const std::string_view token = string_token(text, origin);
  const std::string_view rest = trim(text.substr(token.size()));
  GLUON_CHECK(rest.empty() || rest.starts_with('#'), origin, ": expected nothing after ", token, ", got ", rest);
  return decoded(token, origin);
}

const ConfigField& field_named(std::string_view key, const std::string& origin) {
  for (const ConfigField& field : config_fields()) {
    if (key == field.name) return field;
  }
  throw InputError(join(origin, ": unknown key '", key, "'"));
}

}  // namespace

std::string config_toml(const TrainConfig& config) {
  std::string text;
  for (const ConfigField& field : config_fields()) {
    std::string value = value_text(config, field);
    if (std::holds_alternative<std::string TrainConfig::*>(field.member)) value = quoted(value, field.name);
    text += join(field.name, "=", value, "\n");
  }
  return text;
}

void parse_config_toml(const std::string& text, const std::string& origin, TrainConfig& config,
                       const std::set<std::string>& keep) {
  std::istringstream lines(text);
  std::set<std::string> seen;
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    const std::string_view entry = trim(line);
    if (entry.empty() || entry.starts_with('#')) continue;
    const std::string where = join(origin, " line ", number);
    const std::size_t sign = entry.find('=');
    GLUON_CHECK(sign != std::string_view::npos, where, ": expected key=value, got '", entry, "'");
    const ConfigField& field = field_named(trim(entry.substr(0, sign)), where);
    GLUON_CHECK(seen.insert(field.name).second, where, ": the key '", field.name, "' is given twice");
    const std::string value = parse_value(trim(entry.substr(sign + 1)), where);
    if (!keep.contains(field.name)) set_value(config, field, value, join(where, ": ", field.name));
  }
}

void read_config_toml(const std::filesystem::path& path, TrainConfig& config, const std::set<std::string>& keep) {
  GLUON_CHECK(std::filesystem::exists(path), "config: no file ", path.string());
  GLUON_CHECK(!std::filesystem::is_directory(path), "config: ", path.string(), " is a folder, not a file");
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  GLUON_CHECK(file, "config: cannot read ", path.string());
  parse_config_toml(text.str(), "config " + path.string(), config, keep);
}

TrainConfig read_run_config(const std::filesystem::path& run) {
  (void)RunDirectory::open(run);
  TrainConfig config;
  read_config_toml(run / "config.toml", config);
  config.out = run.string();
  return config;
}

}  // namespace gluon::lab
