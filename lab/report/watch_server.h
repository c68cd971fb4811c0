// WatchServer: serves WatchAnswers over HTTP, with cpp-httplib.
//
// Without that library the build uses no_watch_server.cpp instead.

#pragma once

#include <memory>
#include <string>

#include "lab/report/watch_answers.h"

namespace gluon::lab {

struct WatchOptions {
  std::string host = "127.0.0.1";
  int port = 7007;  // 0: any free port
  std::string token;

  /// Throws InputError for a host beyond loopback without a token, a token that is short or has other characters than
  /// letters, digits, '-', '_' and '.', or a bad port.
  void validate() const;
};

class WatchServer {
 public:
  /// Serves from its own threads until it is destroyed. Throws InputError when it cannot listen on the address.
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
