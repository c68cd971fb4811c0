#include "gluon/core/spec.h"

#include <charconv>
#include <cmath>
#include <cstdint>

#include "gluon/core/check.h"

namespace gluon {
namespace {

constexpr std::size_t kShownCharacters = 40;  // of a text too long to be anyone's expression

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

template <typename Number> Number parse_whole(std::string_view text, std::string_view what, std::string_view kind) {
  const std::string_view digits = trim(text);
  Number value{};
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  GLUON_CHECK(error == std::errc() && end == digits.data() + digits.size(), what, ": expected ", kind, ", got '", text,
              "'");
  return value;
}

}  // namespace

Spec parse_spec(std::string_view text, std::string_view what) {
  const std::string_view whole = trim(text);
  const auto open = whole.find('(');
  Spec spec{std::string(trim(whole.substr(0, open))), {}};
  GLUON_CHECK(!spec.name.empty(), what, ": expected a name, got '", text, "'");
  if (open == std::string_view::npos) return spec;
  GLUON_CHECK(whole.back() == ')', what, ": expected name(argument,...), got '", text, "'");

  const std::string_view inside = whole.substr(open + 1, whole.size() - open - 2);
  int depth = 0;
  std::size_t start = 0;
  for (std::size_t i = 0; i <= inside.size(); ++i) {
    if (i == inside.size() || (inside[i] == ',' && depth == 0)) {
      spec.arguments.emplace_back(trim(inside.substr(start, i - start)));
      start = i + 1;
    } else if (inside[i] == '(') {
      ++depth;
      GLUON_CHECK(depth < kMaxSpecDepth, what, ": parentheses deeper than ", kMaxSpecDepth, " in ", text.size(),
                  " characters that start with '", text.substr(0, kShownCharacters), "'");
    } else if (inside[i] == ')') {
      --depth;
      GLUON_CHECK(depth >= 0, what, ": unbalanced parentheses in '", text, "'");
    }
  }
  GLUON_CHECK(depth == 0, what, ": unbalanced parentheses in '", text, "'");
  return spec;
}

double parse_number(std::string_view text, std::string_view what) {
  const double value = parse_whole<double>(text, what, "a number");
  GLUON_CHECK(std::isfinite(value), what, ": expected a finite number, got '", text, "'");
  return value;
}

int64_t parse_integer(std::string_view text, std::string_view what) {
  return parse_whole<int64_t>(text, what, "a whole number");
}

std::string number_text(double value) {
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  return error == std::errc() ? std::string(buffer, end) : join(value);
}

std::string spec_text(std::string_view name, std::initializer_list<double> arguments) {
  std::string text(name);
  char separator = '(';
  for (const double argument : arguments) {
    text += separator + number_text(argument);
    separator = ',';
  }
  return text + (separator == '(' ? "" : ")");
}

}  // namespace gluon
