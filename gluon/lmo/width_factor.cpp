#include "gluon/lmo/width_factor.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <string>

#include "gluon/core/check.h"
#include "gluon/core/spec.h"

namespace gluon {
namespace {

// Recursive descent: sum = product {(+|-) product}, product = atom {(*|/) atom}, atom = number | name |
// function(sum[,sum]) | (sum).
class Parser {
 public:
  Parser(std::string_view text, const MatrixShape& shape) : text_(text), shape_(shape) {}

  double whole() {
    const double value = sum();
    skip_blanks();
    check(at_ == text_.size(), "an operator");
    return value;
  }

 private:
  double sum() {
    double value = product();
    while (const char sign = accept_any("+-")) value = sign == '+' ? value + product() : value - product();
    return value;
  }

  double product() {
    double value = atom();
    while (const char sign = accept_any("*/")) value = sign == '*' ? value * atom() : value / atom();
    return value;
  }

  double atom() {
    if (accept_any("(")) {
      const double value = inner();
      expect(')');
      return value;
    }
    check(at_ < text_.size(), "a number, m, n, kernel, sqrt, max or min");
    return std::isalpha(static_cast<unsigned char>(text_[at_])) ? name() : number();
  }

  double number() {
    double value = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    check(error == std::errc(), "a number, m, n, kernel, sqrt, max or min");
    at_ = static_cast<std::size_t>(end - text_.data());
    return value;
  }

  double name() {
    const std::size_t start = at_;
    while (at_ < text_.size() && std::isalpha(static_cast<unsigned char>(text_[at_]))) ++at_;
    const std::string_view word = text_.substr(start, at_ - start);
    if (word == "m") return static_cast<double>(shape_.rows);
    if (word == "n") return static_cast<double>(shape_.cols);
    if (word == "kernel") return static_cast<double>(shape_.kernel);
    const bool known = word == "sqrt" || word == "max" || word == "min";
    if (!known) at_ = start;
    check(known, "a number, m, n, kernel, sqrt, max or min");
    expect('(');
    const double first = inner();
    double value = std::sqrt(first);
    if (word != "sqrt") {
      expect(',');
      const double second = inner();
      value = word == "max" ? std::max(first, second) : std::min(first, second);
    }
    expect(')');
    return value;
  }

  // A sum in parentheses.
  double inner() {
    GLUON_CHECK(++depth_ <= kMaxSpecDepth, "width factor: parentheses deeper than ", kMaxSpecDepth);
    const double value = sum();
    --depth_;
    return value;
  }

  void skip_blanks() { at_ = std::min(text_.find_first_not_of(' ', at_), text_.size()); }

  // The symbol that was found and passed, or 0.
  char accept_any(std::string_view symbols) {
    skip_blanks();
    return at_ < text_.size() && symbols.find(text_[at_]) != std::string_view::npos ? text_[at_++] : '\0';
  }

  void expect(char symbol) { check(accept_any({&symbol, 1}) != '\0', std::string("'") + symbol + "'"); }

  void check(bool condition, std::string_view expected) const {
    GLUON_CHECK(condition, "width factor '", text_, "': expected ", expected, " at '", text_.substr(at_), "'");
  }

  std::string_view text_;
  const MatrixShape& shape_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

double width_factor(std::string_view expression, const MatrixShape& shape) { return Parser(expression, shape).whole(); }

}  // namespace gluon
