// `--ranks N` without a launcher: this program again, N times, on this machine.

#pragma once

#include <chrono>

namespace gluon::cli {

/// Exit code of a rank that ends because it lost another one.
constexpr int kRankLostCode = 3;

/// Starts `count` processes with this one's arguments, which meet over loopback, and waits for all of them. SIGINT
/// and SIGTERM go on to them. After the first failure the others have `grace` to end by themselves. Returns the exit
/// code of the first that failed by itself, or 0. Throws InputError when they cannot be started.
int launch_ranks(int count, std::chrono::milliseconds grace);

/// Whether launch_ranks() started this process: all ranks then write to the same terminal.
bool was_launched();

/// In such a process: it stops, as on SIGTERM, should the launcher die.
void end_with_launcher();

}  // namespace gluon::cli
