// Starts the ranks of `gluon train --ranks N`: N processes of this program on this machine.

#pragma once

#include <chrono>

namespace gluon::lab {

/// Exit code of a rank that stops because it lost another one.
constexpr int kRankLostCode = 3;

/// Starts `count` processes with the arguments of this one, which meet over loopback, and waits for all of them.
/// Forwards the first SIGINT, SIGTERM or SIGHUP to them and kills them on a second (stop_requests.h). Kills those that
/// still run `grace` after the first failure. Returns the exit code of the first that failed for a reason of its own;
/// if all were stopped by a signal, 128 and its number. Throws InputError when a process cannot be started.
int launch_ranks(int count, std::chrono::milliseconds grace);

/// True in a process that launch_ranks() started: all ranks then write to the same terminal.
bool was_launched();

/// Makes such a process stop, as on SIGTERM, when the launcher dies.
void end_with_launcher();

}  // namespace gluon::lab
