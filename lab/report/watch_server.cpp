#include "lab/report/watch_server.h"

#include <httplib.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "gluon/core/check.h"

namespace gluon::lab {
namespace {

constexpr std::size_t kThreads = 64;  // mostly idle
constexpr int kBacklog = 512;
constexpr time_t kTimeout = 2;  // seconds that a connection may be silent

WatchRequest request_of(const httplib::Request& request) {
  constexpr std::string_view kBearer = "Bearer ";
  const std::string bearer = request.get_header_value("Authorization");
  return {.method = request.method,
          .path = request.path,
          .host = request.get_header_value("Host"),
          .token = bearer.starts_with(kBearer) ? bearer.substr(kBearer.size()) : request.get_param_value("token"),
          .known = request.get_header_value("If-None-Match")};
}

void send(const WatchAnswer& answer, httplib::Response& response) {
  response.status = answer.status;
  response.set_content(*answer.body, answer.type);
  if (!answer.tag.empty()) response.set_header("ETag", answer.tag);
  if (answer.status == 405) response.set_header("Allow", "GET, HEAD");
}

struct Listener {
  httplib::Server server;
  socket_t socket = INVALID_SOCKET;
  std::jthread thread;  // joins after the stop below
  ~Listener() { server.stop(); }
};

}  // namespace

WatchServer serve(WatchAnswers& answers, const WatchOptions& options) {
  options.validate();
  const auto listener = std::make_shared<Listener>();
  httplib::Server& server = listener->server;
  server.new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
  // One request per connection: an idle connection would occupy a thread.
  server.set_keep_alive_max_count(1);
  server.set_keep_alive_timeout(kTimeout);
  server.set_read_timeout(kTimeout);
  server.set_write_timeout(kTimeout);
  // Not the default SO_REUSEPORT, which would share the port with another server.
  server.set_socket_options([listener = listener.get()](socket_t socket) {
    const int yes = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    listener->socket = socket;
  });
  server.set_default_headers({{"Cache-Control", "no-store"},
                              {"X-Content-Type-Options", "nosniff"},
                              {"X-Frame-Options", "DENY"},
                              {"Referrer-Policy", "no-referrer"}});
  // Runs before the library's own routing, which would read bodies and serve files.
  server.set_pre_routing_handler([&answers](const httplib::Request& request, httplib::Response& response) {
    send(answers.answer(request_of(request)), response);
    return httplib::Server::HandlerResponse::Handled;
  });
  errno = 0;
  const int port = options.port == 0 ? server.bind_to_any_port(options.host) : options.port;
  const bool bound = options.port == 0 ? port > 0 : server.bind_to_port(options.host, port);
  GLUON_CHECK(bound, "watch: cannot listen on ", options.host, " port ", options.port, ": ",
              errno == 0 ? "not an address of this machine" : std::strerror(errno),
              "; choose another --port (0 takes a free one) or --host");
  // The library's backlog is 5; beyond that the kernel drops connections, which are retried seconds later.
  ::listen(listener->socket, kBacklog);
  listener->thread = std::jthread([&server] { server.listen_after_bind(); });
  while (!server.is_running()) std::this_thread::yield();  // an earlier stop() would be ignored
  return {port, listener};
}

}  // namespace gluon::lab
