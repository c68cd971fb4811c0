// WatchServer: serves WatchAnswers over HTTP, one request per connection.
//
// A connection costs a place of the PollServer until its request is complete; only then is it worked on, by one of a
// few threads.

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
