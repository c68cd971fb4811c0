// Whole numbers on the command line: CLI11 takes one that does not fit for the largest that does.

#pragma once

#include <CLI/CLI.hpp>

namespace gluon::cli {

/// Lets every option of `app` and its commands that holds a whole number refuse those it cannot hold.
void check_whole_numbers(CLI::App& app);

}  // namespace gluon::cli
