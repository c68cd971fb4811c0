// WatchAnswers: the answers of `gluon watch`, without the network.
//
//   request -> token -> method -> path -> "/": the page, "/data.json": report_json of the runs as they are now
//
// No other path exists and none is mapped to a file: a request can neither read anything else nor change a run. A run is
// read again when a file of it has changed, but in at most kShare of one core's time, so that watching does not slow
// down the training. Only the JSON text of each run is kept; reading a run for the first time is not counted.

#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gluon/fit/fit.h"
#include "lab/report/report_json.h"
#include "lab/report/report_sources.h"

namespace gluon::lab {

struct WatchRequest {
  std::string method;
  std::string path;
  std::string host;   // the Host header, may be empty
  std::string token;  // may be empty
  std::string known;  // the If-None-Match header: the tag of the data that the client has
};

struct WatchAnswer {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string tag;  // ETag of the body, may be empty
  std::shared_ptr<const std::string> body;
};

struct WatchOptions {
  std::string host = "127.0.0.1";
  int port = 7007;  // 0: any free port
  std::string token;

  /// Throws InputError for a host beyond loopback without a token, a token that is short or has other characters than
  /// letters, digits, '-', '_' and '.', or a bad port.
  void validate() const;
};

class WatchAnswers {
 public:
  static constexpr double kShare = 1.0 / 200;

  /// Without a `token`, only requests whose Host is a loopback address are answered: a foreign page may have given this
  /// machine another name. A path need not exist yet, but the folder it will be in must. Throws InputError otherwise,
  /// and in a program without the page.
  WatchAnswers(std::vector<std::filesystem::path> runs, FitOptions fit, std::string token);

  /// May be called from several threads. Does not throw.
  WatchAnswer answer(const WatchRequest& request);

 private:
  // What is kept of a run or a sweep.
  struct Part {
    std::string made_for;  // the name and the limits it was read for
    std::string stamp;     // of the files it was read from
    std::string json;      // empty: there is nothing to show yet
    std::string why;       // when that is so
  };

  std::shared_ptr<const WatchAnswer> newest();
  std::shared_ptr<const WatchAnswer> read_all();  // 200 with the data, or 202 with the reason why there is none yet
  bool read(const ReportSource& source, const ReportLimits& limits);  // whether its JSON has changed

  std::vector<std::filesystem::path> runs_;
  FitOptions fit_;
  std::string token_;
  std::shared_ptr<const std::string> page_;
  std::string started_;  // time of start, so that the tags of two servers differ
  int64_t version_ = 0;

  std::mutex reading_;  // held by the thread that reads and sets the data; the others answer with the last data
  std::map<std::filesystem::path, Part> parts_;
  std::vector<std::string> skipped_;
  double uncounted_ = 0;  // seconds that runs cost which were read for the first time

  std::mutex mutex_;  // guards the two members below
  std::shared_ptr<const WatchAnswer> data_;
  std::chrono::steady_clock::time_point rest_until_;
};

}  // namespace gluon::lab
