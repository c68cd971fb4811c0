#include "gluon/distributed/meeting.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <future>
#include <memory>

#include "gluon/core/check.h"
#include "gluon/distributed/collective.h"

namespace gluon {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPoll{20};
constexpr std::chrono::seconds kSlack{5};  // for what has a timeout of its own, before it is taken for hung
constexpr const char* kRefusal = "meeting/refusal";
constexpr const char* kAbsence = "meeting/absence";

std::string key_of(const char* what, int rank) { return join("meeting/", what, "/", rank); }

std::string place(const Ranks& ranks) { return join(ranks.master_address, ":", ranks.master_port); }

std::string seconds(const Ranks& ranks) {
  return join(static_cast<double>(ranks.timeout.count()) / 1000.0, " s");
}

bool is_loopback(const std::string& address) { return address == "::1" || address.starts_with("127."); }

// c10d would say so in several lines, and only after it has logged some more.
void check_port(uint16_t port) {
  const int socket = ::socket(AF_INET6, SOCK_STREAM, 0);
  if (socket < 0) return;  // no IPv6 here: leave it to c10d
  const int yes = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(port);
  // Listening tells what binding does not: another socket at the same port that may be reused, too.
  const bool taken = (::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
                      ::listen(socket, 1) != 0) &&
                     errno == EADDRINUSE;
  ::close(socket);
  GLUON_CHECK(!taken, "rank 0: MASTER_PORT ", port, " is in use on this machine; choose another");
}

c10::intrusive_ptr<c10d::TCPStore> open_store(const Ranks& ranks, bool hold, const char* holder = "rank 0") {
  if (hold) check_port(ranks.master_port);
  c10d::TCPStoreOptions options;
  options.port = ranks.master_port;
  options.isServer = hold;
  options.numWorkers = static_cast<std::size_t>(ranks.size);
  options.waitWorkers = false;  // it would not say who is missing
  options.timeout = ranks.timeout;
  try {
    return c10::make_intrusive<c10d::TCPStore>(ranks.master_address, options);
  } catch (const std::exception& error) {
    throw RankLost(join("rank ", ranks.rank, ": ", holder, " does not answer at ", place(ranks), " within ",
                        seconds(ranks), " (", first_line(error), ")"));
  }
}

std::vector<int> missing_ranks(c10d::Store& store, const Ranks& ranks) {
  std::vector<int> missing;
  for (int rank = 0; rank < ranks.size; ++rank) {
    if (!store.check({key_of("address", rank)})) missing.push_back(rank);
  }
  return missing;
}

// Asks for one rank at a time: with many ranks the store has to answer all of them.
void wait_for_all(c10d::Store& store, const Ranks& ranks) {
  const Clock::time_point deadline = Clock::now() + ranks.timeout;
  for (int rank = 0; rank < ranks.size; ++rank) {
    while (!store.check({key_of("address", rank)})) {
      if (store.check({kRefusal})) throw InputError(text_of(store.get(kRefusal)));
      if (store.check({kAbsence})) throw RankLost(text_of(store.get(kAbsence)));
      if (Clock::now() > deadline) {
        throw RankLost(join(listed(missing_ranks(store, ranks)), " did not come to ", place(ranks),
                            " within ", seconds(ranks)));
      }
      std::this_thread::sleep_for(kPoll);
    }
  }
}

void come(c10d::Store& store, const Ranks& ranks, const std::string& address) {
  const std::string size = std::to_string(ranks.size);
  const std::string theirs = text_of(store.compareSet("meeting/size", {}, bytes(size)));
  GLUON_CHECK(theirs == size, "rank ", ranks.rank, " has WORLD_SIZE ", size, ", another rank at ",
              place(ranks), " has ", theirs);
  GLUON_CHECK(store.add(key_of("came", ranks.rank), 1) == 1, "two processes at ", place(ranks), " have RANK ",
              ranks.rank);
  store.set(key_of("address", ranks.rank), bytes(address));
  wait_for_all(store, ranks);
}

// What one rank complains about, all of them do.
void come_or_refuse(c10d::Store& store, const Ranks& ranks, const std::string& address) {
  const std::string self = join("rank ", ranks.rank, ": ");
  const auto tell = [&](const char* key, const std::exception& error) {
    try {
      store.set(key, bytes(error.what()));
    } catch (const std::exception&) {
      return self + error.what();  // rank 0 and its store are gone: nobody is left to be told
    }
    std::this_thread::sleep_for(20 * kPoll);  // the store goes with rank 0: the others have to read it before
    return self + error.what();
  };
  try {
    come(store, ranks, address);
  } catch (const InputError& error) {
    throw InputError(tell(kRefusal, error));
  } catch (const RankLost& error) {
    throw RankLost(tell(kAbsence, error));
  } catch (const std::exception& error) {
    throw RankLost(
        join(self, "rank 0 ended before all ranks had come to ", place(ranks), " (", first_line(error), ")"));
  }
}

// A name of the first machine may mean the loopback there, and only there (Debian's 127.0.1.1): that machine then
// takes the address from which it reaches a rank that has a better one.
std::string reachable(c10d::Store& store, const Ranks& ranks, const std::string& mine) {
  if (!is_loopback(mine)) return mine;
  for (int rank = 0; rank < ranks.size; ++rank) {
    const std::string theirs = text_of(store.get(key_of("address", rank)));
    if (!is_loopback(theirs)) return address_towards(theirs, ranks.master_port);
  }
  return mine;
}

// The store of these ranks. Where the launcher's has the port, rank 0 takes any other and says there which.
c10::intrusive_ptr<c10d::TCPStore> open_own_store(Ranks& ranks) {
  if (ranks.port_key.empty()) return open_store(ranks, ranks.rank == 0);
  const auto launcher = open_store(ranks, false, "torchrun");
  if (ranks.rank == 0) {
    ranks.master_port = 0;
    auto own = open_store(ranks, true);
    ranks.master_port = own->getPort();
    launcher->set(ranks.port_key, bytes(std::to_string(ranks.master_port)));
    return own;
  }
  try {
    ranks.master_port = static_cast<uint16_t>(std::stoi(text_of(launcher->get(ranks.port_key))));
  } catch (const std::exception& error) {
    throw RankLost(join("rank ", ranks.rank, ": rank 0 did not come to torchrun's store at ", place(ranks),
                        " within ", seconds(ranks), " (", first_line(error), ")"));
  }
  return open_store(ranks, false);
}

Meeting meet_unbounded(Ranks ranks) {
  Meeting meeting;
  const std::string mine = address_towards(ranks.master_address, ranks.master_port);
  meeting.store = open_own_store(ranks);
  come_or_refuse(*meeting.store, ranks, mine);
  meeting.address = reachable(*meeting.store, ranks, mine);
  meeting.watch_store = open_store(ranks, false);
  return meeting;
}

}  // namespace

Meeting meet(const Ranks& ranks) {
  const auto meeting = std::make_shared<Meeting>();
  // Connecting and waiting take a timeout each at most; a store that hangs answers never.
  if (finishes_within(2 * ranks.timeout + kSlack, [=] { *meeting = meet_unbounded(ranks); })) return *meeting;
  throw RankLost(join("rank ", ranks.rank, ": rank 0 does not answer at ", place(ranks)));
}

std::string address_towards(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;  // nothing is sent: connecting only chooses the route
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  GLUON_CHECK(code == 0, "ranks: MASTER_ADDR '", host,
              "' is no host that this machine knows: ", ::gai_strerror(code));
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
    if (chosen && ::getnameinfo(plain, size, digits, sizeof digits, nullptr, 0, NI_NUMERICHOST) == 0)
      return digits;
  }
  throw InputError(join("ranks: no route to MASTER_ADDR '", host, "': ", std::strerror(error)));
}

std::string listed(const std::vector<int>& ranks) {
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

std::thread talking_thread(std::function<void()> body) {
  return std::thread([body = std::move(body)] {
    sigset_t pipe;
    ::sigemptyset(&pipe);
    ::sigaddset(&pipe, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
    body();
  });
}

bool finishes_within(std::chrono::milliseconds limit, std::function<void()> body) {
  const auto task = std::make_shared<std::packaged_task<void()>>(std::move(body));
  std::future<void> done = task->get_future();
  talking_thread([task] { (*task)(); }).detach();
  if (done.wait_for(limit) != std::future_status::ready) return false;
  done.get();
  return true;
}

}  // namespace gluon
