#include "cli/whole_numbers.h"

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <limits>

#include "gluon/core/check.h"

namespace gluon::cli {
namespace {

template <typename Number> std::string range_error(bool fits, const std::string& text) {
  using Limits = std::numeric_limits<Number>;
  return fits ? "" : join("must be in ", Limits::min(), "..", Limits::max(), ", got ", text);
}

std::string check_signed(const std::string& text) {
  errno = 0;
  (void)std::strtoll(text.c_str(), nullptr, 0);
  return range_error<int64_t>(errno != ERANGE, text);
}

std::string check_unsigned(const std::string& text) {
  errno = 0;
  (void)std::strtoull(text.c_str(), nullptr, 0);  // accepts negative numbers
  return range_error<uint64_t>(errno != ERANGE && !text.starts_with('-'), text);
}

}  // namespace

void check_whole_numbers(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    const std::string type = option->get_type_name();
    if (type.starts_with("INT")) option->check(CLI::Validator(check_signed, ""));
    if (type.starts_with("UINT")) option->check(CLI::Validator(check_unsigned, ""));
  }
  for (CLI::App* command : app.get_subcommands({})) check_whole_numbers(*command);
}

}  // namespace gluon::cli
