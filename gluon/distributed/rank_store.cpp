#include "gluon/distributed/rank_store.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <unordered_map>

#include "gluon/core/check.h"
#include "gluon/core/hmac.h"

namespace gluon {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kGreeting = "gluon-1\n";
constexpr std::size_t kNonce = 16, kSize = 4;
constexpr uint32_t kLargest = 1U << 26;  // of a request or an answer
constexpr std::chrono::milliseconds kPause{50};
constexpr char kRefusal = '!';
constexpr char kSet = 's', kGet = 'g', kAdd = 'a', kSwap = 'c', kDelete = 'd', kCount = 'n';

std::string proof(const std::string& secret, const char* side, std::string_view nonces) {
  return hmac(secret, std::string(side) + std::string(nonces));
}

std::string packed_size(std::size_t size) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(size >> shift & 255);
  return bytes;
}

uint32_t unpacked_size(std::string_view bytes) {
  uint32_t size = 0;
  for (std::size_t i = 0; i < kSize; ++i) size = size << 8 | static_cast<unsigned char>(bytes[i]);
  return size;
}

// A text after its size.
std::string packed(std::string_view text) { return packed_size(text.size()) + std::string(text); }

// Takes such a text off the front of `bytes`.
std::string take_text(std::string_view& bytes) {
  if (bytes.size() < kSize || unpacked_size(bytes) > bytes.size() - kSize) throw std::runtime_error("a broken request");
  const std::string text(bytes.substr(kSize, unpacked_size(bytes)));
  bytes.remove_prefix(kSize + text.size());
  return text;
}

std::vector<uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }
std::string text_of(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

// What rank 0 knows; used by the server's thread alone.
class Table {
 public:
  explicit Table(std::string secret) : secret_(std::move(secret)) {}

  void greet(PollServer::Connection& stranger) const {
    stranger.note = random_bytes(kNonce);
    stranger.send(std::string(kGreeting) + stranger.note);
  }

  void receive(PollServer::Connection& connection) {
    if (!connection.note.empty() && !let_in(connection)) return;
    while (connection.received().size() >= kSize) {
      const uint32_t size = unpacked_size(connection.received());
      if (size > kLargest) throw std::runtime_error("too large a request");
      if (connection.received().size() < kSize + size) return;
      connection.send(packed(answer(std::string_view(connection.received()).substr(kSize, size))));
      connection.consume(kSize + size);
    }
  }

 private:
  // False while the proof is incomplete, or when it is wrong.
  bool let_in(PollServer::Connection& stranger) const {
    if (stranger.received().size() < kNonce + kTagBytes) return false;
    const std::string nonces = stranger.note + stranger.received().substr(0, kNonce);
    const bool knows = same_secret(stranger.received().substr(kNonce, kTagBytes), proof(secret_, "rank", nonces));
    if (knows) {
      stranger.note.clear();
      stranger.consume(kNonce + kTagBytes);
      stranger.send(proof(secret_, "store", nonces));
      stranger.trust();
    } else {
      stranger.send(std::string(kTagBytes, kRefusal));
      stranger.finish();
    }
    return knows;
  }

  std::string answer(std::string_view request) {
    if (request.empty()) throw std::runtime_error("an empty request");
    const char kind = request.front();
    request.remove_prefix(1);
    const std::string key = take_text(request), value = take_text(request);
    const auto found = values_.find(key);
    const bool known = found != values_.end();
    std::string result = known ? found->second : "";
    if (kind == kSet) values_[key] = value;
    if (kind == kAdd) result = values_[key] = std::to_string((known ? std::stoll(result) : 0) + std::stoll(value));
    if (kind == kSwap && result == take_text(request)) result = values_[key] = value;
    if (kind == kDelete && known) values_.erase(found);
    if (kind == kCount) result = std::to_string(values_.size());
    return std::string(1, known ? '1' : '0') + (kind == kSet ? "" : result);
  }

  std::string secret_;
  std::unordered_map<std::string, std::string> values_;
};

// Waits until the socket is ready for `events`. Throws after the deadline.
void await(int socket, short events, Clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd one{socket, events, 0};
    const int ready = ::poll(&one, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30)));
    if (ready > 0) return;
    if (ready == 0) throw std::runtime_error("no answer in time");
    if (errno != EINTR) throw std::runtime_error(std::strerror(errno));
  }
}

void send_all(int socket, std::string_view bytes, Clock::time_point deadline) {
  while (!bytes.empty()) {
    await(socket, POLLOUT, deadline);
    const ssize_t count = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno != EAGAIN && errno != EINTR) throw std::runtime_error(std::strerror(errno));
    if (count > 0) bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

std::string receive_all(int socket, std::size_t size, Clock::time_point deadline) {
  std::string bytes(size, '\0');
  for (std::size_t done = 0; done < size;) {
    await(socket, POLLIN, deadline);
    const ssize_t count = ::recv(socket, bytes.data() + done, size - done, MSG_DONTWAIT);
    if (count == 0) throw std::runtime_error("the connection was closed");
    if (count < 0 && errno != EAGAIN && errno != EINTR) throw std::runtime_error(std::strerror(errno));
    if (count > 0) done += static_cast<std::size_t>(count);
  }
  return bytes;
}

// A connected socket, or -1 with errno.
int connect_to(const addrinfo& place, Clock::time_point deadline) {
  const int socket = ::socket(place.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket < 0) return -1;
  int error = ::connect(socket, place.ai_addr, place.ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    try {
      await(socket, POLLOUT, deadline);
      socklen_t size = sizeof error;
      ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size);
    } catch (const std::exception&) {
      error = ETIMEDOUT;
    }
  }
  const int yes = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  if (error == 0) return socket;
  ::close(socket);
  errno = error;
  return -1;
}

int connect_to(const std::string& host, uint16_t port, Clock::time_point deadline) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  GLUON_CHECK(code == 0, "ranks: '", host, "' is not a known host: ", ::gai_strerror(code));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  for (;;) {
    for (const addrinfo* place = found; place != nullptr; place = place->ai_next) {
      if (const int socket = connect_to(*place, deadline); socket >= 0) return socket;
    }
    if (Clock::now() > deadline) throw std::runtime_error(std::strerror(errno));
    std::this_thread::sleep_for(kPause);  // rank 0 may start later
  }
}

void introduce(int socket, const std::string& secret, Clock::time_point deadline) {
  const std::string greeting = receive_all(socket, kGreeting.size() + kNonce, deadline);
  if (!greeting.starts_with(kGreeting)) throw std::runtime_error("what answers there is not a rank");
  const std::string own = random_bytes(kNonce), nonces = greeting.substr(kGreeting.size()) + own;
  send_all(socket, own + proof(secret, "rank", nonces), deadline);
  GLUON_CHECK(same_secret(receive_all(socket, kTagBytes, deadline), proof(secret, "store", nonces)),
              "this rank and rank 0 differ in GLUON_SECRET");
}

}  // namespace

std::unique_ptr<PollServer> serve_store(const std::string& host, uint16_t port, const std::string& secret) {
  const auto table = std::make_shared<Table>(secret);
  return std::make_unique<PollServer>(
      PollServer::Options{.host = host,
                          .port = port,
                          .most_bytes = 4096,
                          .on_open = [table](PollServer::Connection& connection) { table->greet(connection); },
                          .on_bytes = [table](PollServer::Connection& connection) { table->receive(connection); }});
}

RankStore::RankStore(Options options) : c10d::Store(options.timeout), options_(std::move(options)) {
  // In a crowd of strangers rank 0 may close a connection that has not introduced itself yet: it is tried again.
  for (const Clock::time_point deadline = Clock::now() + options_.timeout;;) {
    socket_ = connect_to(options_.host, options_.port, deadline);
    try {
      introduce(socket_, options_.secret, deadline);
      return;
    } catch (const std::exception& error) {
      ::close(socket_);
      if (dynamic_cast<const InputError*>(&error) != nullptr || Clock::now() + kPause > deadline) throw;
      std::this_thread::sleep_for(kPause);
    }
  }
}

RankStore::~RankStore() { ::close(socket_); }

// After an error the connection is not used again: an answer may still be on its way.
RankStore::Answer RankStore::request(char kind, const std::string& key, const std::string& value) {
  const std::lock_guard lock(mutex_);
  if (socket_ < 0) throw std::runtime_error("the store has failed before");
  const Clock::time_point deadline = Clock::now() + timeout_;
  try {
    send_all(socket_, packed(kind + packed(key) + value), deadline);
    const uint32_t size = unpacked_size(receive_all(socket_, kSize, deadline));
    if (size == 0 || size > kLargest) throw std::runtime_error("a broken answer");
    const std::string answer = receive_all(socket_, size, deadline);
    return {answer.front() == '1', answer.substr(1)};
  } catch (const std::exception&) {
    ::close(socket_);
    socket_ = -1;
    throw;
  }
}

void RankStore::set(const std::string& key, const std::vector<uint8_t>& value) {
  request(kSet, key, packed(text_of(value)));
}

std::vector<uint8_t> RankStore::compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                           const std::vector<uint8_t>& desired) {
  return bytes_of(request(kSwap, key, packed(text_of(desired)) + packed(text_of(expected))).value);
}

std::vector<uint8_t> RankStore::get(const std::string& key) {
  wait({key}, timeout_);
  return bytes_of(request(kGet, key, packed("")).value);
}

int64_t RankStore::add(const std::string& key, int64_t value) {
  return std::stoll(request(kAdd, key, packed(std::to_string(value))).value);
}

bool RankStore::deleteKey(const std::string& key) { return request(kDelete, key, packed("")).found; }

bool RankStore::check(const std::vector<std::string>& keys) {
  return std::all_of(keys.begin(), keys.end(),
                     [this](const std::string& key) { return request(kGet, key, packed("")).found; });
}

int64_t RankStore::getNumKeys() { return std::stoll(request(kCount, "", packed("")).value); }

void RankStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  constexpr std::chrono::milliseconds kLongest{50};
  const Clock::time_point deadline = Clock::now() + timeout;
  for (std::chrono::milliseconds pause{1}; !check(keys); pause = std::min(2 * pause, kLongest)) {
    if (Clock::now() > deadline) throw std::runtime_error(join("no rank has set ", keys.front(), " in time"));
    std::this_thread::sleep_for(pause);
  }
}

c10::intrusive_ptr<c10d::Store> RankStore::clone() { return c10::make_intrusive<RankStore>(options_); }

}  // namespace gluon
