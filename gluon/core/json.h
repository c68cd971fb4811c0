// JSON from files that anyone may have written: headers of safetensors, facts.json, vocabularies, strings in configs.
//
// The library's own parser takes any depth, and copying or printing what it returns recurses: a few hundred kilobytes
// of brackets end the program. Of a name that is listed twice it silently takes the last value.

#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace gluon {

inline constexpr std::size_t kMaxJsonDepth = 32;

/// The value of `text`. Throws InputError that starts with `origin` when it is not JSON, has objects
/// and lists inside one another beyond `max_depth`, or lists a name twice.
nlohmann::json parse_json(std::string_view text, std::string_view origin, std::size_t max_depth = kMaxJsonDepth);

}  // namespace gluon
