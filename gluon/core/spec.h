// The text form of small objects, name(argument,...), shared by norms, radii, momenta and schedules.
//
// What a routing report prints, a config file holds and a make_x() function parses is the same text:
// scaled(0.5,spectral), power(0.018), ema(0.9), linear(5000,1450).

#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace gluon {

/// "scaled(0.5,spectral(svd))" -> name "scaled", arguments {"0.5", "spectral(svd)"}.
struct Spec {
  std::string name;
  std::vector<std::string> arguments;
};

/// Parentheses inside one another; whoever reads an expression calls itself for each.
inline constexpr int kMaxSpecDepth = 32;

/// Splits at the outermost parentheses and commas; blanks around the parts are dropped. `what` names the kind of
/// object in errors. Throws InputError on unbalanced parentheses, more than kMaxSpecDepth of them, or an empty name.
Spec parse_spec(std::string_view text, std::string_view what);

/// The whole of `text` as a number; `what` says in errors where it was found. Throws InputError.
double parse_number(std::string_view text, std::string_view what);
int64_t parse_integer(std::string_view text, std::string_view what);

/// The shortest text that parses back to the same double.
std::string number_text(double value);

/// name(a,b,...) from numbers.
std::string spec_text(std::string_view name, std::initializer_list<double> arguments);

}  // namespace gluon
