// WatchAnswers: what `gluon watch` answers, without the network.
//
//   request -> token -> method -> path -> "/": the page, "/data.json": report_json of the runs as they are now
//
// There are no other paths, and none leads to a file: a request can neither read anything else nor change a run. The
// data is read anew when a file of a run has changed, but never for more than kShare of one core's time: watching must
// not slow the training it watches.

#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gluon/fit/fit.h"

namespace gluon::lab {

struct WatchRequest {
  std::string method;
  std::string path;
  std::string host;   // the header; empty when the request has none
  std::string token;  // empty when the request has none
  std::string known;  // the tag of the data the reader has: If-None-Match
};

struct WatchAnswer {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string tag;  // of the body; empty: none
  std::shared_ptr<const std::string> body;
};

/// Whether only this machine can reach `host`: localhost, 127.0.0.0/8 or ::1.
bool is_loopback(const std::string& host);

class WatchAnswers {
 public:
  static constexpr double kShare = 1.0 / 200;

  /// Without a `token`, only requests to a loopback address are answered, whatever name a foreign page has given it.
  /// Throws InputError for a run that does not exist, and where the program has no page.
  WatchAnswers(std::vector<std::filesystem::path> runs, FitOptions fit, std::string token);

  /// May be called from several threads. Does not throw.
  WatchAnswer answer(const WatchRequest& request);

 private:
  struct Data {
    std::string stamp;                        // of the files it was made from
    std::string tag;                          // of the body
    std::shared_ptr<const std::string> body;  // null: `waiting` says why
    std::string waiting;
  };

  WatchAnswer data(const std::string& known);
  std::shared_ptr<const Data> newest();
  std::shared_ptr<const Data> read(const std::string& stamp, const std::shared_ptr<const Data>& before);
  std::string stamp() const;

  std::vector<std::filesystem::path> runs_;
  FitOptions fit_;
  std::string token_;
  std::shared_ptr<const std::string> page_;
  std::string born_;  // makes tags of two servers differ
  int64_t version_ = 0;

  std::mutex reading_;  // one thread reads; the others answer with what there is
  std::mutex mutex_;    // of the two below
  std::shared_ptr<const Data> data_;
  std::chrono::steady_clock::time_point rest_until_;
};

}  // namespace gluon::lab
