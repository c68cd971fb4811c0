#include "cli/whole_numbers.h"

#include <cerrno>
#include <cstdlib>

#include "gluon/check.h"

namespace gluon::cli {
namespace {

std::string refuse_signed(const std::string& text) {
  errno = 0;
  (void)std::strtoll(text.c_str(), nullptr, 0);
  return errno == ERANGE ? join("is too large a number: ", text) : "";
}

std::string refuse_unsigned(const std::string& text) {
  if (text.starts_with('-')) return join("must be >= 0, got ", text);
  errno = 0;
  (void)std::strtoull(text.c_str(), nullptr, 0);
  return errno == ERANGE ? join("is too large a number: ", text) : "";
}

}  // namespace

void check_whole_numbers(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    const std::string type = option->get_type_name();
    if (type.starts_with("INT")) option->check(CLI::Validator(refuse_signed, ""));
    if (type.starts_with("UINT")) option->check(CLI::Validator(refuse_unsigned, ""));
  }
  for (CLI::App* command : app.get_subcommands({})) check_whole_numbers(*command);
}

}  // namespace gluon::cli
