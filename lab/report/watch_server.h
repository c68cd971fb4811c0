// WatchServer: WatchAnswers on a port of this machine, by cpp-httplib.
//
// Without that library the build takes no_watch_server.cpp instead.

#pragma once

#include <memory>
#include <string>

#include "lab/report/watch_answers.h"

namespace gluon::lab {

struct WatchOptions {
  std::string host = "127.0.0.1";
  int port = 7007;  // 0: any that is free
  std::string token;

  /// Throws InputError for a host beyond loopback without a token, a short or odd token, or a port that is none.
  void validate() const;
};

class WatchServer {
 public:
  /// Listens and answers from a thread of its own until it is destroyed. Throws InputError when it cannot listen there.
  WatchServer(WatchAnswers& answers, const WatchOptions& options);
  ~WatchServer();
  WatchServer(const WatchServer&) = delete;
  WatchServer& operator=(const WatchServer&) = delete;

  int port() const;

 private:
  struct Listener;
  std::unique_ptr<Listener> listener_;
};

}  // namespace gluon::lab
