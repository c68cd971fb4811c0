#include "gluon/distributed/rank_watch.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <sstream>
#include <vector>

#include "gluon/core/check.h"
#include "gluon/distributed/meeting.h"

namespace gluon {
namespace {

using Clock = std::chrono::steady_clock;

// In beats: without one the rank does not answer; a silence has to last, be seen by rank 0 and come back as news.
constexpr int kSilence = 6, kPatience = 12, kFarewell = 10;
constexpr const char* kNews = "watch/news";

constexpr char kRuns = 'r', kLeft = 'l', kGaveUp = 'g', kFailed = 'f';

std::string key_of(int rank) { return "watch/" + std::to_string(rank); }

std::string line_of(const std::string& text) { return text.substr(0, text.find('\n')); }

struct Record {
  char ending = kRuns;
  bool gone = false;  // does not wait for news any more
  int64_t beats = 0;
  int64_t exchanges = 0;
  std::string why;

  std::string text() const { return join(ending, ' ', gone, ' ', beats, ' ', exchanges, ' ', why); }
  static Record parse(const std::string& text) {
    Record record;
    std::istringstream in(text);
    in >> record.ending >> record.gone >> record.beats >> record.exchanges;
    in.get();
    std::getline(in, record.why);
    return record;
  }
};

struct News {
  int64_t beats = 0;
  std::string lost;       // whose fault it is that others cannot go on
  std::string hint;       // what may be the reason when nobody is lost
  std::string first_why;  // the error with which rank 0 ends

  std::string text() const { return join(beats, '\n', lost, '\n', hint, '\n', first_why, '\n'); }
  static News parse(const std::string& text) {
    News news;
    std::istringstream in(text);
    in >> news.beats;
    in.get();
    std::getline(in, news.lost);
    std::getline(in, news.hint);
    std::getline(in, news.first_why);
    return news;
  }
};

struct Seen {
  Record record;
  Clock::time_point when;
  bool stale = false;

  bool silent() const { return stale && record.ending == kRuns; }
};

std::vector<int> those(const std::vector<Seen>& seen, const std::function<bool(const Seen&)>& condition) {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < seen.size(); ++rank) {
    if (condition(seen[rank])) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

std::string do_not_answer(const std::vector<int>& ranks) {
  return listed(ranks) + (ranks.size() > 1 ? " do not answer" : " does not answer");
}

// An error says more than a silence, and both more than what ranks made of them.
std::string find_lost(const std::vector<Seen>& seen) {
  const auto ended = [&](char how) {
    return those(seen, [=](const Seen& one) { return one.record.ending == how; });
  };
  if (const std::vector<int> failed = ended(kFailed); !failed.empty()) {
    return join("rank ", failed[0],
                " ended with an error: ", seen[static_cast<std::size_t>(failed[0])].record.why);
  }
  if (const std::vector<int> silent = those(seen, &Seen::silent); !silent.empty())
    return do_not_answer(silent);
  const std::vector<int> gave_up = ended(kGaveUp);
  return gave_up.empty() ? "" : seen[static_cast<std::size_t>(gave_up[0])].record.why;
}

std::string find_hint(const std::vector<Seen>& seen) {
  const auto left = those(seen, [](const Seen& one) { return one.record.ending == kLeft; });
  if (!left.empty()) return listed(left) + (left.size() > 1 ? " have" : " has") + " left the run";
  int64_t most = 0;
  for (const Seen& one : seen) most = std::max(most, one.record.exchanges);
  const auto behind = those(seen, [&](const Seen& one) { return one.record.exchanges < most; });
  if (behind.empty()) return "";
  return listed(behind) + (behind.size() > 1 ? " answer but have" : " answers but has") +
         " not come to the exchange";
}

}  // namespace

struct RankWatch::State {
  c10::intrusive_ptr<c10d::Store> store;
  Ranks ranks;
  WatchOptions options;

  std::mutex mutex;
  mutable std::condition_variable changed;
  Record own;
  int64_t written = 0;  // beats that have arrived in the store
  bool hurry = false;   // the next beat is due now
  bool stopping = false;
  bool finished = false;  // the thread is
  bool store_lost = false;
  Clock::time_point farewell;
  News news;
  Clock::time_point heard = Clock::now();
  std::vector<Seen> seen;  // by rank 0, in the thread

  void run();
  void beat();
  void look_around(const Record& record);
  bool others_listen() const;
  std::string verdict() const;
};

void RankWatch::State::run() {
  Clock::time_point well = Clock::now();
  try {
    for (bool last = false; !last;) {
      beat();
      std::unique_lock lock(mutex);
      if (verdict().empty()) well = Clock::now();
      if (options.on_lost && !stopping && Clock::now() - well > ranks.timeout) {
        const std::string lost = verdict();
        lock.unlock();
        options.on_lost(lost);
        break;
      }
      last = stopping && written == own.beats && !hurry && (!others_listen() || Clock::now() > farewell);
      if (last) break;
      changed.wait_for(lock, stopping ? options.beat / 20 : options.beat, [this] { return hurry; });
    }
  } catch (const std::exception&) {
    std::unique_lock lock(mutex);
    store_lost = true;
    changed.notify_all();
    if (options.on_lost && !changed.wait_for(lock, ranks.timeout, [this] { return stopping; })) {
      const std::string lost = verdict();
      lock.unlock();
      options.on_lost(lost);
      lock.lock();
    }
  }
  const std::lock_guard lock(mutex);
  finished = true;
  changed.notify_all();
}

// The store is asked without the lock: it may hang.
void RankWatch::State::beat() {
  Record record;
  {
    const std::lock_guard lock(mutex);
    ++own.beats;
    hurry = false;
    record = own;
  }
  store->set(key_of(ranks.rank), bytes(record.text()));
  if (ranks.rank == 0) {
    look_around(record);
  } else if (store->check({kNews})) {
    const News fresh = News::parse(text_of(store->get(kNews)));
    const std::lock_guard lock(mutex);
    if (fresh.beats != news.beats) heard = Clock::now();
    news = fresh;
  }
  const std::lock_guard lock(mutex);
  written = record.beats;
  changed.notify_all();
}

void RankWatch::State::look_around(const Record& record) {
  seen.resize(static_cast<std::size_t>(ranks.size), {{}, Clock::now()});
  seen[0].record = record;
  for (int rank = 1; rank < ranks.size; ++rank) {
    Seen& last = seen[static_cast<std::size_t>(rank)];
    if (store->check({key_of(rank)})) {
      const Record theirs = Record::parse(text_of(store->get(key_of(rank))));
      if (theirs.beats != last.record.beats) last = {theirs, Clock::now()};
    }
    last.stale = Clock::now() - last.when > kSilence * options.beat;
  }
  News fresh{record.beats, find_lost(seen), find_hint(seen), record.ending == kFailed ? record.why : ""};
  store->set(kNews, bytes(fresh.text()));
  const std::lock_guard lock(mutex);
  news = std::move(fresh);
  heard = Clock::now();
}

bool RankWatch::State::others_listen() const {
  return std::any_of(seen.begin(), seen.end(),
                     [&](const Seen& one) { return &one != seen.data() && !one.record.gone && !one.stale; });
}

// Called with the lock. The last news of a rank 0 that is gone may say why it went.
std::string RankWatch::State::verdict() const {
  if (!news.lost.empty()) return news.lost;
  const bool first_is_silent = store_lost || Clock::now() - heard > kSilence * options.beat;
  return ranks.rank > 0 && first_is_silent ? do_not_answer({0}) : "";
}

RankWatch::RankWatch(c10::intrusive_ptr<c10d::Store> store, const Ranks& ranks, WatchOptions options)
    : state_(std::make_shared<State>()) {
  state_->store = std::move(store);
  state_->ranks = ranks;
  state_->options = std::move(options);
  thread_ = talking_thread([state = state_] { state->run(); });
}

RankWatch::~RankWatch() {
  std::unique_lock lock(state_->mutex);
  if (state_->own.ending == kRuns) state_->own.ending = kLeft;
  state_->own.gone = state_->stopping = state_->hurry = true;
  state_->farewell = Clock::now() + kFarewell * state_->options.beat;
  state_->changed.notify_all();
  // Rank 0 says farewell to the others; everybody else only writes a last line, unless the store hangs.
  const Clock::time_point limit = (rank() == 0 ? state_->farewell : Clock::now()) + 2 * state_->options.beat;
  const bool finished = state_->changed.wait_until(lock, limit, [this] { return state_->finished; });
  lock.unlock();
  if (finished) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

int RankWatch::rank() const { return state_->ranks.rank; }

void RankWatch::count_exchange() {
  const std::lock_guard lock(state_->mutex);
  ++state_->own.exchanges;
}

std::string RankWatch::cause() const {
  std::unique_lock lock(state_->mutex);
  const Clock::time_point deadline = Clock::now() + kPatience * state_->options.beat;
  while (state_->verdict().empty() && Clock::now() < deadline)
    state_->changed.wait_for(lock, state_->options.beat);
  const std::string lost = state_->verdict();
  return lost.empty() ? state_->news.hint : lost;
}

void RankWatch::fail(const std::string& why) { end(kFailed, why); }

void RankWatch::give_up(const std::string& why) { end(kGaveUp, why); }

bool RankWatch::ends() const {
  const std::lock_guard lock(state_->mutex);
  return state_->own.ending != kRuns;
}

// The first ending counts: what comes after it follows from it.
void RankWatch::end(char how, const std::string& why) {
  std::unique_lock lock(state_->mutex);
  if (state_->own.ending != kRuns) return;
  state_->own.ending = how;
  state_->own.why = line_of(why);
  state_->hurry = true;
  state_->changed.notify_all();
  const int64_t due = state_->own.beats + 1;
  state_->changed.wait_for(lock, kSilence * state_->options.beat,
                           [&] { return state_->written >= due || state_->finished; });
}

bool RankWatch::first_fails_with(const std::string& why) const {
  if (rank() == 0) return false;
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, kSilence * state_->options.beat,
                                  [&] { return state_->news.first_why == line_of(why); });
}

}  // namespace gluon
