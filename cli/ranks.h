// `--ranks N` without a launcher: this program again, N times, on this machine.

#pragma once

namespace gluon::cli {

/// Starts `count` processes with this one's arguments, which meet over loopback, and waits for all of them; the first
/// exit code that is not 0, or 0. Throws InputError when they cannot be started.
int launch_ranks(int count, int threads_each);

}  // namespace gluon::cli
