#include "gluon/distributed/store.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "gluon/core/check.h"
#include "gluon/distributed/rank_store.h"

namespace gluon {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPoll{20};
constexpr std::chrono::milliseconds kDelivery{400};  // for the others to read an error before rank 0's store closes
constexpr const char* kMisfit = "meeting/misfit";    // the text of an InputError
constexpr const char* kAbsence = "meeting/absence";  // the text of a RankLost

std::string joined_key(int rank) { return join("meeting/joined/", rank); }

std::vector<int> missing_ranks(c10d::Store& store, int size) {
  std::vector<int> missing;
  for (int rank = 0; rank < size; ++rank) {
    if (!store.check({joined_key(rank)})) missing.push_back(rank);
  }
  return missing;
}

// Ranks that meet at a loopback address are all on this machine. A name does not tell: Debian gives a machine's own name
// a loopback address there, and elsewhere it has another.
bool meets_here(const Ranks& ranks) {
  const std::string& place = ranks.master_address;
  return place == "localhost" || place == "::1" ||
         (place.starts_with("127.") && place.find_first_not_of("0123456789.") == std::string::npos);
}

std::shared_ptr<PollServer> serve_store_of(const Ranks& ranks) {
  try {
    return serve_store(meets_here(ranks) ? ranks.master_address : "", ranks.master_port, ranks.secret);
  } catch (const std::system_error& error) {
    GLUON_CHECK(error.code().value() != EADDRINUSE, "MASTER_PORT ", ranks.master_port,
                " is in use on this machine; choose another");
    throw InputError(
        join("cannot listen on ", ranks.master_address, " port ", ranks.master_port, ": ", error.code().message()));
  }
}

// Torchrun's own store, with the keys of this run.
StorePtr open_launcher_store(const Ranks& ranks) {
  c10d::TCPStoreOptions options;
  options.port = ranks.master_port;
  options.waitWorkers = false;
  options.timeout = ranks.timeout;
  return c10::make_intrusive<c10d::PrefixStore>(ranks.store_prefix,
                                                c10::make_intrusive<c10d::TCPStore>(ranks.master_address, options));
}

// Polls one rank at a time: the store has to answer all ranks.
void wait_for_all(c10d::Store& store, const Ranks& ranks) {
  const Clock::time_point deadline = Clock::now() + ranks.timeout;
  for (int rank = 0; rank < ranks.size; ++rank) {
    while (!store.check({joined_key(rank)})) {
      if (store.check({kMisfit})) throw InputError(to_text(store.get(kMisfit)));
      if (store.check({kAbsence})) throw RankLost(to_text(store.get(kAbsence)));
      if (Clock::now() > deadline) {
        throw RankLost(join(list_ranks(missing_ranks(store, ranks.size)), " did not join at ", place_and_time(ranks)));
      }
      std::this_thread::sleep_for(kPoll);
    }
  }
}

void join_others(c10d::Store& store, const Ranks& ranks) {
  const std::string size = std::to_string(ranks.size);
  const std::string first_size = to_text(store.compareSet("meeting/size", {}, to_bytes(size)));
  GLUON_CHECK(first_size == size, "rank ", ranks.rank, " has WORLD_SIZE ", size, ", another rank has ", first_size);
  GLUON_CHECK(store.add(joined_key(ranks.rank), 1) == 1, "two processes have RANK ", ranks.rank);
  wait_for_all(store, ranks);
}

// Passes an error on to the other ranks.
void publish(c10d::Store& store, const char* key, const std::exception& error) {
  try {
    store.set(key, to_bytes(error.what()));
    std::this_thread::sleep_for(kDelivery);
  } catch (const std::exception&) {  // rank 0 and its store are gone: nobody is left to read it
  }
}

}  // namespace

Meeting meet_at_store(const Ranks& ranks) {
  const StorePtr store = open_store(ranks);
  const std::string self = join("rank ", ranks.rank, ": ");
  try {
    join_others(*store, ranks);
    return {.store = store};
  } catch (const InputError& error) {
    publish(*store, kMisfit, error);
    throw InputError(self + error.what());
  } catch (const RankLost& error) {
    publish(*store, kAbsence, error);
    throw RankLost(self + error.what());
  } catch (const std::exception& error) {
    throw RankLost(join(self, "rank 0 ended before all ranks had joined (", first_line(error), ")"));
  }
}

StorePtr open_store(const Ranks& ranks, bool serve) {
  const bool launcher_serves = !ranks.store_prefix.empty();
  (void)address_towards(ranks.master_address, ranks.master_port);  // an unknown host is an InputError
  try {
    if (launcher_serves) return open_launcher_store(ranks);
    GLUON_CHECK(meets_here(ranks) || !ranks.secret.empty(), "MASTER_ADDR ", ranks.master_address,
                " is open to other machines: set GLUON_SECRET to the same secret for all ranks");
    RankStore::Options options{
        .host = ranks.master_address, .port = ranks.master_port, .secret = ranks.secret, .timeout = ranks.timeout};
    if (serve && ranks.rank == 0) options.server = serve_store_of(ranks);
    return c10::make_intrusive<RankStore>(std::move(options));
  } catch (const InputError& error) {
    throw InputError(join("rank ", ranks.rank, ": ", error.what()));
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

std::string list_ranks(const std::vector<int>& ranks) {
  std::string text = ranks.size() > 1 ? "ranks " : "rank ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

std::string first_line(const std::exception& error) {
  std::string text = error.what();
  text = text.substr(0, text.find('\n'));
  if (!text.starts_with('[')) return text;
  const std::size_t end = text.find("] ");
  return end == std::string::npos ? text : text.substr(end + 2);
}

}  // namespace gluon
