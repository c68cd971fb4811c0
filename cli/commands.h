// The commands of the program: each adds its subcommand with a callback that runs it.

#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace gluon {
struct FitOptions;
}

namespace gluon::cli {

void add_bench(CLI::App& app);
void add_data(CLI::App& app);
void add_eval(CLI::App& app);
void add_fit(CLI::App& app);
void add_report(CLI::App& app);
void add_reproduce(CLI::App& app);
void add_sample(CLI::App& app);
void add_theory(CLI::App& app);
void add_sweep(CLI::App& app);
void add_train(CLI::App& app);
void add_tune(CLI::App& app);
void add_watch(CLI::App& app);

/// The flags of FitOptions, shared by all commands that fit.
void add_fit_options(CLI::App& command, FitOptions& fit);

/// Prints the cells as one line, each in its width: at the left, or at the right where the width is negative.
void print_row(const std::vector<int>& widths, const std::vector<std::string>& cells);

}  // namespace gluon::cli
