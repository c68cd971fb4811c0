#include "lab/report/watch_server.h"

#include <condition_variable>
#include <deque>
#include <optional>
#include <system_error>
#include <thread>

#include "gluon/core/check.h"
#include "gluon/core/poll_server.h"
#include "lab/report/watch_request.h"

namespace gluon::lab {
namespace {

constexpr int kThreads = 4;  // one may read the runs, the others answer with what was read before

const char* reason(int status) {
  switch (status) {
    case 200: return "OK";
    case 202: return "Accepted";
    case 304: return "Not Modified";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 431: return "Request Header Fields Too Large";
    case 505: return "HTTP Version Not Supported";
    default: return "Bad Request";
  }
}

std::string head_of(const WatchAnswer& answer) {
  return join("HTTP/1.1 ", answer.status, ' ', reason(answer.status), "\r\nContent-Type: ", answer.type,
              "\r\nContent-Length: ", answer.body->size(), answer.tag.empty() ? "" : "\r\nETag: ", answer.tag,
              answer.status == 405 ? "\r\nAllow: GET, HEAD" : "",
              "\r\nAccept-Ranges: none\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
              "X-Frame-Options: DENY\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n");
}

class Listener {
 public:
  Listener(WatchAnswers& answers, const WatchOptions& options)
      : answers_(answers),
        server_({.host = options.host,
                 .port = static_cast<uint16_t>(options.port),
                 .on_open = nullptr,
                 .on_bytes = [this](PollServer::Connection& connection) { receive(connection); }}) {
    for (int i = 0; i < kThreads; ++i) {
      threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
    }
  }

  int port() const { return server_.port(); }

 private:
  struct Job {
    uint64_t connection;
    WatchRequest request;
  };

  void receive(PollServer::Connection& connection) {
    try {
      std::optional<WatchRequest> request = read_request(connection.received());
      if (!request) return;
      connection.work();
      {
        const std::lock_guard lock(mutex_);
        jobs_.push_back({connection.id(), std::move(*request)});
      }
      changed_.notify_one();
    } catch (const BadRequest& bad) {
      const auto words = std::make_shared<const std::string>(join("gluon watch: ", bad.why, "\n"));
      send(connection, {.status = bad.status, .tag = {}, .body = words}, /*head_only=*/false);
    }
  }

  static void send(PollServer::Connection& connection, const WatchAnswer& answer, bool head_only) {
    connection.send(head_of(answer));
    if (!head_only) connection.send(answer.body);
    connection.finish();
  }

  void work(const std::stop_token& stop) {
    for (;;) {
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [this] { return !jobs_.empty(); })) return;
      const Job job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      server_.later(job.connection, [answer = answers_.answer(job.request), head_only = job.request.method == "HEAD"](
                                        PollServer::Connection& connection) { send(connection, answer, head_only); });
    }
  }

  WatchAnswers& answers_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Job> jobs_;  // at most one for each place of the server
  PollServer server_;
  std::vector<std::jthread> threads_;  // stop first
};

}  // namespace

WatchServer serve(WatchAnswers& answers, const WatchOptions& options) {
  options.validate();
  try {
    const auto listener = std::make_shared<Listener>(answers, options);
    return {listener->port(), listener};
  } catch (const std::system_error& error) {
    throw InputError(join("watch: cannot listen on ", options.host, " port ", options.port, ": ",
                          error.code().message(), "; choose another --port (0 takes a free one) or --host"));
  }
}

}  // namespace gluon::lab
