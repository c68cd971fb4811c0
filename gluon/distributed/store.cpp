#include "gluon/distributed/store.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "gluon/core/check.h"

namespace gluon {
namespace {

// c10d reports a port in use in several lines, after several lines of log.
void check_port(uint16_t port) {
  const int socket = ::socket(AF_INET6, SOCK_STREAM, 0);
  if (socket < 0) return;  // no IPv6 here: leave it to c10d
  const int yes = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  // Another socket that also allows reuse fails listen(), not bind().
  const bool taken =
      (::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || ::listen(socket, 1) != 0) &&
      errno == EADDRINUSE;
  ::close(socket);
  GLUON_CHECK(!taken, "rank 0: MASTER_PORT ", port, " is in use on this machine; choose another");
}

}  // namespace

Meeting meet_at_store(const Ranks& ranks) {
  const StorePtr store = open_store(ranks);
  const auto key = [](int rank) { return join("joined/", rank); };
  store->set(key(ranks.rank), to_bytes("yes"));
  for (int rank = 0; rank < ranks.size; ++rank) {
    try {
      store->wait({key(rank)});
    } catch (const std::exception& error) {
      throw RankLost(join("rank ", ranks.rank, ": rank ", rank, " did not join at ", place_and_time(ranks), " (",
                          first_line(error), ")"));
    }
  }
  return {.store = store};
}

StorePtr open_store(const Ranks& ranks, bool serve) {
  const bool launcher_serves = !ranks.store_prefix.empty();
  c10d::TCPStoreOptions options;
  options.port = ranks.master_port;
  options.isServer = serve && ranks.rank == 0 && !launcher_serves;
  options.waitWorkers = false;
  options.timeout = ranks.timeout;
  (void)address_towards(ranks.master_address,
                        ranks.master_port);  // c10d retries an unknown host until the timeout
  if (options.isServer) check_port(ranks.master_port);
  try {
    const auto store = c10::make_intrusive<c10d::TCPStore>(ranks.master_address, options);
    if (!launcher_serves) return store;
    return c10::make_intrusive<c10d::PrefixStore>(ranks.store_prefix, store);
  } catch (const std::exception& error) {
    throw RankLost(join("rank ", ranks.rank, ": ", launcher_serves ? "the launcher" : "rank 0", " does not answer at ",
                        place_and_time(ranks), " (", first_line(error), ")"));
  }
}

std::string address_towards(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;  // nothing is sent: connecting only chooses the route
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  GLUON_CHECK(code == 0, "ranks: MASTER_ADDR '", host, "' is not a known host: ", ::gai_strerror(code));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  int error = 0;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    const int socket = ::socket(one->ai_family, one->ai_socktype, 0);
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    auto* plain = reinterpret_cast<sockaddr*>(&own);
    char digits[NI_MAXHOST];
    const bool chosen = socket >= 0 && ::connect(socket, one->ai_addr, one->ai_addrlen) == 0 &&
                        ::getsockname(socket, plain, &size) == 0;
    error = errno;
    if (socket >= 0) ::close(socket);
    if (chosen && ::getnameinfo(plain, size, digits, sizeof digits, nullptr, 0, NI_NUMERICHOST) == 0) return digits;
  }
  throw InputError(join("ranks: no route to MASTER_ADDR '", host, "': ", std::strerror(error)));
}

std::string place_and_time(const Ranks& ranks) {
  return join(ranks.master_address, ":", ranks.master_port, " within ",
              static_cast<double>(ranks.timeout.count()) / 1000.0, " s");
}

std::string first_line(const std::exception& error) {
  std::string text = error.what();
  text = text.substr(0, text.find('\n'));
  if (!text.starts_with('[')) return text;
  const std::size_t end = text.find("] ");
  return end == std::string::npos ? text : text.substr(end + 2);
}

}  // namespace gluon
