// Range checks for whole numbers on the command line, which CLI11 clamps without an error.

#pragma once

#include <CLI/CLI.hpp>

namespace gluon::cli {

/// Makes every integer option of `app` and its subcommands reject numbers that do not fit its type.
void check_whole_numbers(CLI::App& app);

}  // namespace gluon::cli
