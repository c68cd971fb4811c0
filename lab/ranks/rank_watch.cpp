#include "lab/ranks/rank_watch.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <nlohmann/json.hpp>
#include <vector>

#include "gluon/core/check.h"
#include "gluon/distributed/store.h"

namespace gluon::lab {
namespace {

using Clock = std::chrono::steady_clock;

// In beats. kPatience: a silence must last, rank 0 must see it, and its news must arrive.
constexpr int kSilence = 6, kPatience = 12, kFarewell = 10;
constexpr const char* kNews = "watch/news";

constexpr char kRuns = 'r', kLeft = 'l', kGaveUp = 'g', kFailed = 'f';

std::string key_of(int rank) { return "watch/" + std::to_string(rank); }

// What a rank writes about itself.
struct Record {
  char ending = kRuns;
  bool closed = false;  // its watch does not read news any more
  int64_t beats = 0;
  int64_t exchanges = 0;
  std::string why;  // one line

  NLOHMANN_DEFINE_TYPE_INTRUSIVE(Record, ending, closed, beats, exchanges, why)
};

// What rank 0 concludes from all records.
struct News {
  int64_t beats = 0;
  std::string lost;  // who keeps the others from continuing
  std::string hint;  // a possible reason for a failure while no rank is lost

  NLOHMANN_DEFINE_TYPE_INTRUSIVE(News, beats, lost, hint)
};

template <typename Value> void write(c10d::Store& store, const std::string& key, const Value& value) {
  store.set(key, nlohmann::json::to_cbor(value));
}

template <typename Value> Value read(c10d::Store& store, const std::string& key) {
  return nlohmann::json::from_cbor(store.get(key)).get<Value>();
}

// The last record of a rank, as rank 0 knows it.
struct Seen {
  Record record;
  Clock::time_point when;
  bool stale = false;
};

template <typename Condition> std::vector<int> ranks_where(const std::vector<Seen>& seen, Condition condition) {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < seen.size(); ++rank) {
    if (condition(seen[rank])) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

// The list, then the verb in singular or plural.
std::string sentence(const std::vector<int>& ranks, const char* one, const char* several) {
  return list_ranks(ranks) + (ranks.size() > 1 ? several : one);
}

std::string silence(const std::vector<int>& ranks) { return sentence(ranks, " does not answer", " do not answer"); }

std::string failure(int rank, const std::string& why) { return join("rank ", rank, " ended with an error: ", why); }

// An error is a better reason than a silence, and a silence than the conclusions of ranks that gave up.
std::string find_lost(const std::vector<Seen>& seen) {
  const auto ended = [&](char how) {
    return ranks_where(seen, [=](const Seen& one) { return one.record.ending == how; });
  };
  const auto why = [&](int rank) { return seen[static_cast<std::size_t>(rank)].record.why; };
  if (const auto failed = ended(kFailed); !failed.empty()) return failure(failed[0], why(failed[0]));
  const auto silent = ranks_where(seen, [](const Seen& one) { return one.stale && one.record.ending == kRuns; });
  if (!silent.empty()) return silence(silent);
  const auto gave_up = ended(kGaveUp);
  return gave_up.empty() ? "" : why(gave_up[0]);
}

std::string find_hint(const std::vector<Seen>& seen) {
  const auto left = ranks_where(seen, [](const Seen& one) { return one.record.ending == kLeft; });
  if (!left.empty()) return sentence(left, " has left the run", " have left the run");
  int64_t most = 0;
  for (const Seen& one : seen) most = std::max(most, one.record.exchanges);
  const auto behind = ranks_where(seen, [&](const Seen& one) { return one.record.exchanges < most; });
  if (behind.empty()) return "";
  return sentence(behind, " answers but has not joined the exchange", " answer but have not joined the exchange");
}

}  // namespace

struct RankWatch::State {
  c10::intrusive_ptr<c10d::Store> store;
  Ranks ranks;
  WatchOptions options;

  std::mutex mutex;
  std::condition_variable changed;
  Record own;
  int64_t written = 0;      // the last beat that is in the store
  bool hurry = false;       // the next beat is due now
  bool store_lost = false;  // the store has failed: no beat follows
  bool finished = false;    // the thread has
  Clock::time_point farewell;
  News news;
  Clock::time_point heard = Clock::now();
  std::vector<Seen> seen;  // on rank 0, used by the thread alone

  void run();
  void beat();
  void read_records(const Record& record);
  bool others_listen() const;
  std::string lost() const;
  void end(char how, const std::string& why);
};

void RankWatch::State::run() {
  Clock::time_point all_well = Clock::now();
  for (;;) {
    try {
      if (!store_lost) beat();
    } catch (const std::exception&) {
      const std::lock_guard lock(mutex);
      store_lost = true;
    }
    std::unique_lock lock(mutex);
    if (store_lost) hurry = false;
    changed.notify_all();
    if (own.closed && !hurry && (store_lost || !others_listen() || Clock::now() > farewell)) break;
    if (lost().empty()) all_well = Clock::now();
    if (options.on_lost && !own.closed && Clock::now() - all_well > ranks.timeout) {
      const std::string cause = lost();
      lock.unlock();
      options.on_lost(cause);
      break;
    }
    changed.wait_for(lock, own.closed ? options.beat / 20 : options.beat, [this] { return hurry; });
  }
  const std::lock_guard lock(mutex);
  finished = true;
  changed.notify_all();
}

// Uses the store without the lock: it may hang.
void RankWatch::State::beat() {
  Record record;
  {
    const std::lock_guard lock(mutex);
    ++own.beats;
    hurry = false;
    record = own;
  }
  write(*store, key_of(ranks.rank), record);
  if (ranks.rank == 0) {
    read_records(record);
  } else if (store->check({kNews})) {
    const News fresh = read<News>(*store, kNews);
    const std::lock_guard lock(mutex);
    if (fresh.beats != news.beats) heard = Clock::now();
    news = fresh;
  }
  const std::lock_guard lock(mutex);
  written = record.beats;
}

void RankWatch::State::read_records(const Record& record) {
  seen.resize(static_cast<std::size_t>(ranks.size), {{}, Clock::now()});
  seen[0].record = record;
  for (int rank = 1; rank < ranks.size; ++rank) {
    Seen& last = seen[static_cast<std::size_t>(rank)];
    if (store->check({key_of(rank)})) {
      const Record fresh = read<Record>(*store, key_of(rank));
      if (fresh.beats != last.record.beats) last = {fresh, Clock::now()};
    }
    last.stale = Clock::now() - last.when > kSilence * options.beat;
  }
  News fresh{record.beats, find_lost(seen), find_hint(seen)};
  write(*store, kNews, fresh);
  const std::lock_guard lock(mutex);
  news = std::move(fresh);
  heard = Clock::now();
}

bool RankWatch::State::others_listen() const {
  return std::any_of(seen.begin(), seen.end(),
                     [&](const Seen& one) { return &one != seen.data() && !one.record.closed && !one.stale; });
}

// Called with the lock. The last news of a rank 0 that is gone may say why it ended.
std::string RankWatch::State::lost() const {
  if (!news.lost.empty()) return news.lost;
  const bool first_is_silent = store_lost || Clock::now() - heard > kSilence * options.beat;
  return ranks.rank > 0 && first_is_silent ? silence({0}) : "";
}

// Only the first ending counts: later ones follow from it. Waits until it is in the store.
void RankWatch::State::end(char how, const std::string& why) {
  std::unique_lock lock(mutex);
  if (own.ending != kRuns) return;
  own.ending = how;
  own.why = why;
  hurry = true;
  changed.notify_all();
  const int64_t due = own.beats + 1;
  changed.wait_for(lock, kSilence * options.beat, [&] { return written >= due || store_lost; });
}

RankWatch::RankWatch(c10::intrusive_ptr<c10d::Store> store, const Ranks& ranks, WatchOptions options)
    : state_(std::make_shared<State>()) {
  state_->store = std::move(store);
  state_->ranks = ranks;
  state_->options = std::move(options);
  thread_ = std::thread([state = state_] { state->run(); });
}

RankWatch::~RankWatch() {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  if (state.own.ending == kRuns) state.own.ending = kLeft;
  state.own.closed = state.hurry = true;
  state.farewell = Clock::now() + kFarewell * state.options.beat;
  state.changed.notify_all();
  // The others only write a last record, unless the store hangs.
  const Clock::time_point limit = (state.ranks.rank == 0 ? state.farewell : Clock::now()) + 2 * state.options.beat;
  const bool finished = state.changed.wait_until(lock, limit, [&] { return state.finished; });
  lock.unlock();
  if (finished) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void RankWatch::count_exchange() {
  const std::lock_guard lock(state_->mutex);
  ++state_->own.exchanges;
}

std::string RankWatch::cause() const {
  std::unique_lock lock(state_->mutex);
  const Clock::time_point deadline = Clock::now() + kPatience * state_->options.beat;
  while (state_->lost().empty() && Clock::now() < deadline) state_->changed.wait_for(lock, state_->options.beat);
  const std::string lost = state_->lost();
  return lost.empty() ? state_->news.hint : lost;
}

std::string RankWatch::explain_failure() {
  std::string why = cause();
  if (why.empty()) why = "an exchange failed although all ranks answer";
  state_->end(kGaveUp, why);
  return why;
}

bool RankWatch::leave(const std::string& why) {
  const std::string line = why.substr(0, why.find('\n'));
  state_->end(kFailed, line);
  if (state_->ranks.rank == 0) return false;
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, kSilence * state_->options.beat,
                                  [&] { return state_->news.lost == failure(0, line); });
}

}  // namespace gluon::lab
