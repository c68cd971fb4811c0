#include "gluon/core/poll_server.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace gluon {
namespace {

constexpr int kBacklog = 512;              // beyond it the kernel drops connections, which are retried seconds later
constexpr int kAtOnce = 64;                // connections accepted before the others are served
constexpr int kTick = 100;                 // milliseconds between looks at the deadlines
constexpr std::chrono::seconds kDrain{2};  // for the other side to take the last bytes

// A listening socket, or -1 with errno.
int listen_at(const addrinfo& place) {
  const int listener = ::socket(place.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (listener < 0) return -1;
  const int yes = 1, no = 0;
  ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (place.ai_family == AF_INET6) ::setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  if (::bind(listener, place.ai_addr, place.ai_addrlen) == 0 && ::listen(listener, kBacklog) == 0) return listener;
  const int error = errno;
  ::close(listener);
  errno = error;
  return -1;
}

int open_listener(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  hints.ai_family = host.empty() ? AF_INET6 : AF_UNSPEC;  // of IPv6 also takes IPv4
  addrinfo* found = nullptr;
  errno = EADDRNOTAVAIL;
  if (::getaddrinfo(host.empty() ? "::" : host.c_str(), std::to_string(port).c_str(), &hints, &found) == 0) {
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
    for (const addrinfo* place = found; place != nullptr; place = place->ai_next) {
      if (const int listener = listen_at(*place); listener >= 0) return listener;
    }
  }
  if (host.empty() && errno != EADDRINUSE) return open_listener("0.0.0.0", port);  // a machine without IPv6
  throw std::system_error(errno, std::generic_category());
}

uint16_t port_of(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

class PollServer::Loop {
 public:
  explicit Loop(Options options)
      : options_(std::move(options)),
        listener_(open_listener(options_.host, options_.port)),
        wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    rlimit files{};
    if (::getrlimit(RLIMIT_NOFILE, &files) == 0)
      options_.places = std::clamp<std::size_t>(files.rlim_cur / 2, 1, options_.places);
    thread_ = std::thread([this] { run(); });
  }

  ~Loop() {
    stop_ = true;
    wake();
    thread_.join();
    for (auto& [id, connection] : connections_) ::close(connection.socket_);
    ::close(listener_);
    ::close(wake_);
  }

  uint16_t port() const { return port_of(listener_); }

  void later(uint64_t connection, Handler action) {
    {
      const std::lock_guard lock(mutex_);
      actions_.emplace_back(connection, std::move(action));
    }
    wake();
  }

 private:
  using State = Connection::State;

  void run();
  void run_actions();
  void accept_some();
  bool make_room();
  bool receive(Connection& connection);
  bool send_some(Connection& connection);
  bool handle(Connection& connection, const Handler& handler);
  bool serve(Connection& connection, int events);
  void wake() const {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake_, &one, sizeof one);
  }

  Options options_;
  int listener_;
  int wake_;
  std::map<uint64_t, Connection> connections_;  // the oldest first
  uint64_t next_ = 1;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;
  std::vector<std::pair<uint64_t, Handler>> actions_;
  std::thread thread_;
};

void PollServer::Loop::run() {
  sigset_t all;  // signals are for the program's other threads
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
  while (!stop_) {
    std::vector<pollfd> polled{{listener_, POLLIN, 0}, {wake_, POLLIN, 0}};
    for (const auto& [id, connection] : connections_) {
      const bool reads = connection.state_ != State::kWorking && connection.state_ != State::kSending;
      const int events = (reads ? POLLIN : 0) | (connection.unsent_.empty() ? 0 : POLLOUT);
      polled.push_back({connection.socket_, static_cast<short>(events), 0});
    }
    ::poll(polled.data(), polled.size(), connections_.empty() ? -1 : kTick);
    std::size_t place = 2;
    for (auto each = connections_.begin(); each != connections_.end();) {
      const bool stays = serve(each->second, polled[place++].revents);
      if (!stays) ::close(each->second.socket_);
      each = stays ? std::next(each) : connections_.erase(each);
    }
    if (polled[1].revents != 0) run_actions();
    if (polled[0].revents != 0) accept_some();
  }
}

void PollServer::Loop::run_actions() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t bytes = ::read(wake_, &count, sizeof count);
  std::vector<std::pair<uint64_t, Handler>> actions;
  {
    const std::lock_guard lock(mutex_);
    actions.swap(actions_);
  }
  for (const auto& [id, action] : actions) {
    const auto found = connections_.find(id);
    if (found == connections_.end() || handle(found->second, action)) continue;
    ::close(found->second.socket_);
    connections_.erase(found);
  }
}

// Closes the oldest connection that still owes a request, or else the oldest that does not take its answer.
bool PollServer::Loop::make_room() {
  for (const bool sending : {false, true}) {
    const auto oldest = std::find_if(connections_.begin(), connections_.end(), [=](const auto& each) {
      const State state = each.second.state_;
      return sending ? state == State::kSending : state == State::kReceiving || state == State::kDraining;
    });
    if (oldest == connections_.end()) continue;
    ::close(oldest->second.socket_);
    connections_.erase(oldest);
    return true;
  }
  return false;
}

void PollServer::Loop::accept_some() {
  for (int i = 0; i < kAtOnce; ++i) {
    const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket < 0) {
      const bool no_files = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      if (no_files && !make_room()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      return;
    }
    if (connections_.size() >= options_.places && !make_room()) {
      ::close(socket);
      continue;
    }
    Connection connection;
    connection.id_ = next_++;
    connection.socket_ = socket;
    connection.deadline_ = Clock::now() + options_.receive_time;
    const auto place = connections_.emplace(connection.id_, std::move(connection)).first;
    if (!options_.on_open || handle(place->second, options_.on_open)) continue;
    ::close(socket);
    connections_.erase(place);
  }
}

// The functions below return false when the connection is to be closed.
bool PollServer::Loop::handle(Connection& connection, const Handler& handler) {
  try {
    handler(connection);
  } catch (const std::exception&) {
    return false;
  }
  if (connection.finishing_ && connection.state_ != State::kSending) {
    connection.state_ = State::kSending;
    connection.deadline_ = Clock::now() + options_.send_time;
  }
  return send_some(connection);
}

bool PollServer::Loop::serve(Connection& connection, int events) {
  if ((events & (POLLERR | POLLNVAL)) != 0) return false;
  if ((events & POLLHUP) != 0 && (events & POLLIN) == 0) return false;
  if ((events & POLLIN) != 0 && !receive(connection)) return false;
  if ((events & POLLOUT) != 0 && !send_some(connection)) return false;
  const bool lasting = connection.state_ == State::kTrusted || connection.state_ == State::kWorking;
  return lasting || Clock::now() < connection.deadline_;
}

bool PollServer::Loop::receive(Connection& connection) {
  char buffer[16384];
  const ssize_t count = ::recv(connection.socket_, buffer, sizeof buffer, 0);
  if (count < 0 && would_block()) return true;
  if (count <= 0) return false;
  if (connection.state_ == State::kDraining) return true;
  connection.received_.append(buffer, static_cast<std::size_t>(count));
  if (!handle(connection, options_.on_bytes)) return false;
  return connection.state_ != State::kReceiving || connection.received_.size() <= options_.most_bytes;
}

bool PollServer::Loop::send_some(Connection& connection) {
  while (!connection.unsent_.empty()) {
    const std::string& bytes = *connection.unsent_.front();
    const std::size_t left = bytes.size() - connection.sent_;
    const ssize_t count = ::send(connection.socket_, bytes.data() + connection.sent_, left, MSG_NOSIGNAL);
    if (count < 0) return would_block();
    connection.sent_ += static_cast<std::size_t>(count);
    if (connection.sent_ < bytes.size()) return true;
    connection.unsent_.pop_front();
    connection.sent_ = 0;
  }
  if (connection.state_ != State::kSending) return true;
  // Closing with unread bytes would reset the connection and with it the answer.
  ::shutdown(connection.socket_, SHUT_WR);
  connection.state_ = State::kDraining;
  connection.deadline_ = Clock::now() + kDrain;
  return true;
}

PollServer::PollServer(Options options) : loop_(std::make_unique<Loop>(std::move(options))) {}
PollServer::~PollServer() = default;
uint16_t PollServer::port() const { return loop_->port(); }
void PollServer::later(uint64_t connection, Handler action) { loop_->later(connection, std::move(action)); }

}  // namespace gluon
