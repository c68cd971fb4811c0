// WatchServer: serves WatchAnswers over HTTP, with cpp-httplib.
//
// Without that library the build uses no_watch_server.cpp instead.

#pragma once

#include <memory>

#include "lab/report/watch_answers.h"

namespace gluon::lab {

struct WatchServer {
  int port = 0;
  std::shared_ptr<void> listener;  // serves from its own threads until it is destroyed
};

/// Throws InputError for bad options, and when it cannot listen on the address. `answers` must outlive the server.
WatchServer serve(WatchAnswers& answers, const WatchOptions& options);

}  // namespace gluon::lab
