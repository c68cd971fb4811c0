// The commands of the program: each adds its subcommand with a callback that runs it.

#pragma once

#include <CLI/CLI.hpp>

namespace gluon::cli {

void add_bench(CLI::App& app);
void add_data(CLI::App& app);
void add_eval(CLI::App& app);
void add_fit(CLI::App& app);
void add_report(CLI::App& app);
void add_sample(CLI::App& app);
void add_theory(CLI::App& app);
void add_sweep(CLI::App& app);
void add_train(CLI::App& app);
void add_tune(CLI::App& app);
void add_watch(CLI::App& app);

/// One sentence for the user if `error` is theirs to solve: bad input, files, exhausted memory. Otherwise nothing.
std::string user_error(const std::exception& error);

}  // namespace gluon::cli
