#include "lab/report/watch_answers.h"

#include <arpa/inet.h>
#include <malloc.h>
#include <time.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "gluon/core/check.h"
#include "gluon/core/hmac.h"
#include "lab/report/page.h"
#include "lab/report/report_data.h"

namespace gluon::lab {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

WatchAnswer words(int status, std::string text) {
  return {.status = status, .tag = {}, .body = std::make_shared<const std::string>(std::move(text) + "\n")};
}

// "127.0.0.1:7007" and "[::1]:7007" without the port.
std::string without_port(const std::string& host) {
  if (host.starts_with('[')) return host.substr(1, host.find(']') - 1);
  return host.substr(0, host.find(':'));
}

// Seconds this thread has computed: unlike the clock on the wall, a busy machine does not stretch them.
double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Whether `host` can be reached from this machine only: localhost, 127.0.0.0/8 or ::1.
bool is_loopback(const std::string& host) {
  if (host == "localhost") return true;
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  in6_addr v6{};
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

void add_stamp(const fs::path& path, std::string& text) {
  std::error_code error;
  const auto time = fs::last_write_time(path, error);
  if (error) return;
  const auto bytes = fs::file_size(path, error);
  text += join(path.filename().string(), ' ', time.time_since_epoch().count(), ' ', error ? 0 : bytes, '\n');
}

// Another text when a file of the run has changed.
void add_run_stamp(const fs::path& run, std::string& text) {
  for (const char* file : {"config.toml", "facts.json", "log.csv", "smoothness.csv"}) add_stamp(run / file, text);
  const std::size_t before = text.size();
  add_stamp(run / "status.json", text);
  // A run that is killed changes no file.
  if (text.size() > before) text += RunDirectory::is_held(run) ? "held\n" : "free\n";
}

std::string stamp_of(const ReportSource& source) {
  std::string text;
  add_stamp(source.path, text);
  if (!source.sweep) {
    add_run_stamp(source.path, text);
    return text;
  }
  const fs::path folder = fs::is_directory(source.path) ? source.path : source.path.parent_path();
  add_stamp(folder / "sweep.csv", text);
  std::error_code error;
  for (auto entry = fs::directory_iterator(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    if (entry->path().filename().native().find('=') != std::string::npos) add_run_stamp(entry->path(), text);
  }
  return text;
}

}  // namespace

void WatchOptions::validate() const {
  constexpr std::size_t kTokenLength = 16;
  GLUON_CHECK(port >= 0 && port <= 65535, "watch: --port must be in 0..65535 (0 takes a free one), got ", port);
  GLUON_CHECK(is_loopback(host) || !token.empty(), "watch: --host ", host,
              " is open to other machines and needs a --token");
  const auto plain = [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_' || c == '.'; };
  GLUON_CHECK(std::all_of(token.begin(), token.end(), plain),
              "watch: --token must consist of letters, digits, '-', '_' and '.', because it is part of an address");
  GLUON_CHECK(token.empty() || token.size() >= kTokenLength, "watch: --token must have at least ", kTokenLength,
              " characters, got ", token.size());
}

WatchAnswers::WatchAnswers(std::vector<fs::path> runs, FitOptions fit, std::string token)
    : runs_(std::move(runs)),
      fit_(fit),
      token_(std::move(token)),
      page_(std::make_shared<const std::string>(live_page())),
      started_(std::to_string(std::chrono::system_clock::now().time_since_epoch().count())) {
  fit_.validate();
  GLUON_CHECK(!runs_.empty(), "watch: expected at least one run");
  for (const fs::path& run : runs_) {
    const fs::path parent = fs::absolute(run).lexically_normal().parent_path();
    GLUON_CHECK(fs::exists(run) || fs::is_directory(parent), "watch: ", run.string(), " does not exist, nor does ",
                parent.string());
  }
}

WatchAnswer WatchAnswers::answer(const WatchRequest& request) {
  if (!token_.empty() && !same_secret(request.token, token_)) {
    return words(401, "gluon watch: the token is missing or wrong; open the address with ?token=...");
  }
  if (token_.empty() && !request.host.empty() && !is_loopback(without_port(request.host))) {
    return words(403, "gluon watch: only loopback addresses are allowed without a token");
  }
  if (request.method != "GET" && request.method != "HEAD") {
    return words(405, "gluon watch: only GET and HEAD are allowed");
  }
  if (request.path == "/") return {.type = "text/html; charset=utf-8", .tag = {}, .body = page_};
  if (request.path != "/data.json") return words(404, "gluon watch: the only paths are / and /data.json");
  WatchAnswer answer = *newest();
  if (answer.status == 200 && answer.tag == request.known) {
    answer.status = 304;
    answer.body = std::make_shared<const std::string>();
  }
  return answer;
}

std::shared_ptr<const WatchAnswer> WatchAnswers::newest() {
  const auto last = [&](bool any) {
    const std::lock_guard lock(mutex_);
    return data_ && (any || Clock::now() < rest_until_) ? data_ : nullptr;
  };
  if (const auto data = last(false)) return data;
  std::unique_lock reading(reading_, std::try_to_lock);
  if (!reading) {
    if (const auto data = last(true)) return data;
    reading.lock();  // wait for the first data
  }
  if (const auto data = last(false)) return data;
  const double start = thread_seconds();
  uncounted_ = 0;
  const auto data = read_all();
  const std::chrono::duration<double> rest((thread_seconds() - start - uncounted_) / kShare);
  const std::lock_guard lock(mutex_);
  data_ = data;
  rest_until_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(rest);
  return data;
}

bool WatchAnswers::read(const ReportSource& source, const ReportLimits& limits) {
  Part& part = parts_[source.path];
  const std::string made_for = join(limits.run_points, ' ', limits.sweep_points, ' ', source.name);
  std::string stamp = stamp_of(source);
  if (part.made_for == made_for && part.stamp == stamp) return false;
  const double start = thread_seconds();
  bool changed = false;
  try {
    std::string json = source.sweep ? sweep_json(read_sweep(source), limits) : run_json(read_run(source, fit_), limits);
    changed = json != part.json;
    part.json = std::move(json);
  } catch (const std::exception& error) {  // it may have just started: the page asks again
    part.why = error.what();
  }
  part.stamp = std::move(stamp);
  if (part.made_for != made_for) uncounted_ += thread_seconds() - start;
  part.made_for = made_for;
  return changed;
}

std::shared_ptr<const WatchAnswer> WatchAnswers::read_all() {
  const ReportSources found = find_sources(runs_);
  const auto sweeps = std::ranges::count_if(found.sources, &ReportSource::sweep);
  const ReportLimits limits =
      ReportLimits::of(found.sources.size() - static_cast<std::size_t>(sweeps), static_cast<std::size_t>(sweeps));
  bool changed = !data_;
  std::set<fs::path> present;
  std::vector<std::string> skipped;
  std::vector<std::string_view> runs_json, sweeps_json;
  for (const SkippedSource& one : found.skipped) skipped.push_back(one.sentence());
  for (const ReportSource& source : found.sources) {
    changed = read(source, limits) || changed;
    present.insert(source.path);
    const Part& part = parts_[source.path];
    if (part.json.empty()) {
      skipped.push_back(join(source.path.string(), " cannot be read yet: ", part.why));
    } else {
      (source.sweep ? sweeps_json : runs_json).push_back(part.json);
    }
  }
  const auto gone = std::erase_if(parts_, [&](const auto& part) { return !present.contains(part.first); });
  if (!changed && gone == 0 && skipped == skipped_) return data_;
  skipped_ = std::move(skipped);
  WatchAnswer answer{.type = "application/json", .tag = join('"', started_, '-', ++version_, '"'), .body = {}};
  if (runs_json.empty() && sweeps_json.empty()) {
    std::string text = "waiting for a run";
    for (const std::string& sentence : skipped_) text += "; " + sentence;
    answer = words(202, std::move(text));
  } else {
    answer.body = std::make_shared<const std::string>(join_json(fit_, skipped_, runs_json, sweeps_json));
  }
  malloc_trim(0);  // the rows of a long log would stay with this process, once for each thread that has read one
  return std::make_shared<const WatchAnswer>(std::move(answer));
}

}  // namespace gluon::lab
