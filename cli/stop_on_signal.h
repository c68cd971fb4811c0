// SIGINT (Ctrl-C), SIGTERM, SIGHUP and SIGPIPE end a run after the current step. Steps can be long: a second Ctrl-C ends
// the program at once, and so does a signal that is no copy of the first (lab/ranks/stop_requests.h).

#pragma once

#include <atomic>

namespace gluon::cli {

/// Installs the handlers; the result turns true when a signal arrives. Under nohup, SIGHUP stays ignored.
const std::atomic<bool>& stop_on_signal();

/// The exit code of a run that was stopped: 128 and the number of the signal, as shells have it. SIGTERM's where only
/// another rank received one. 0 after SIGPIPE: that the output is gone is reported as such.
int stopped_code();

}  // namespace gluon::cli
