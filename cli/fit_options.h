// The flags of FitOptions, shared by all commands that fit.

#pragma once

#include <CLI/CLI.hpp>

#include "gluon/fit/fit.h"

namespace gluon::cli {

inline void add_fit_options(CLI::App& command, FitOptions& fit) {
  command.add_option("--lambda", fit.lambda, "Extra weight of samples above L0 + L1 |g|*; 0: least squares")
      ->capture_default_str();
  command.add_flag("--l0-zero", fit.l0_zero, "Keep L0 at 0 and fit L1 alone");
  command.add_option("--skip-first", fit.skip_first, "Leave out the first N samples of each layer")
      ->capture_default_str();
}

}  // namespace gluon::cli
