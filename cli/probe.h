// gluon tune --probe: the factor on preset sphere's law, before any run exists.

#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

namespace gluon::cli {

struct ProbeCommand;

/// Adds --probe, and what needs it: --budget, --config and the flags of gluon train.
std::shared_ptr<ProbeCommand> add_probe_options(CLI::App& command);

/// Runs the probes in the folder `out`, prints them and writes out/tuned.toml. Throws InputError on bad input, and
/// CLI::RuntimeError with the exit code of a signal that stopped them.
void run_probe(const CLI::App& command, ProbeCommand& probe, const std::string& out, bool json);

}  // namespace gluon::cli
