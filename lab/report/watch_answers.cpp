#include "lab/report/watch_answers.h"

#include <arpa/inet.h>
#include <time.h>

#include "gluon/core/check.h"
#include "lab/report/page.h"
#include "lab/report/report_data.h"
#include "lab/report/report_json.h"

namespace gluon::lab {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

WatchAnswer words(int status, std::string text) {
  return {.status = status, .tag = {}, .body = std::make_shared<const std::string>(std::move(text) + "\n")};
}

// Constant time, so that the token cannot be guessed by timing.
bool same(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
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

}  // namespace

bool is_loopback(const std::string& host) {
  if (host == "localhost") return true;
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  in6_addr v6{};
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

WatchAnswers::WatchAnswers(std::vector<fs::path> runs, FitOptions fit, std::string token)
    : runs_(std::move(runs)),
      fit_(fit),
      token_(std::move(token)),
      page_(std::make_shared<const std::string>(live_page())),
      started_(std::to_string(std::chrono::system_clock::now().time_since_epoch().count())) {
  fit_.validate();
  GLUON_CHECK(!runs_.empty(), "watch: expected at least one run");
  for (const fs::path& run : runs_) GLUON_CHECK(fs::exists(run), "watch: ", run.string(), " does not exist");
}

WatchAnswer WatchAnswers::answer(const WatchRequest& request) {
  if (!token_.empty() && !same(request.token, token_)) {
    return words(401, "gluon watch: the token is missing or wrong; open the address with ?token=...");
  }
  if (token_.empty() && !request.host.empty() && !is_loopback(without_port(request.host))) {
    return words(403, "gluon watch: only loopback addresses are allowed without a token");
  }
  if (request.method != "GET" && request.method != "HEAD") {
    return words(405, "gluon watch: only GET and HEAD are allowed");
  }
  if (request.path == "/") return {.type = "text/html; charset=utf-8", .tag = {}, .body = page_};
  if (request.path == "/data.json") return data(request.known);
  return words(404, "gluon watch: the only paths are / and /data.json");
}

WatchAnswer WatchAnswers::data(const std::string& known) {
  const std::shared_ptr<const Data> now = newest();
  if (!now->body) return words(202, now->waiting);
  WatchAnswer answer{.type = "application/json", .tag = now->tag, .body = now->body};
  if (known == now->tag) {
    answer.status = 304;
    answer.body = std::make_shared<const std::string>();
  }
  return answer;
}

std::shared_ptr<const WatchAnswers::Data> WatchAnswers::newest() {
  const std::string now = stamp();
  const auto current = [&] {
    const std::lock_guard lock(mutex_);
    return std::pair(data_, Clock::now() < rest_until_);
  };
  if (const auto [data, resting] = current(); data && (resting || data->stamp == now)) return data;
  std::unique_lock reading(reading_, std::try_to_lock);
  if (!reading) {
    if (const auto [data, resting] = current(); data) return data;
    reading.lock();  // wait for the first data
  }
  const auto [before, resting] = current();
  if (before && (resting || before->stamp == now)) return before;
  const double start = thread_seconds();
  const std::shared_ptr<const Data> data = read(now, before);
  const std::chrono::duration<double> rest((thread_seconds() - start) / kShare);
  const std::lock_guard lock(mutex_);
  data_ = data;
  rest_until_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(rest);
  return data;
}

std::shared_ptr<const WatchAnswers::Data> WatchAnswers::read(const std::string& stamp,
                                                             const std::shared_ptr<const Data>& before) {
  auto data = std::make_shared<Data>();
  data->stamp = stamp;
  try {
    std::string json = report_json(collect_report(runs_, fit_));
    if (before && before->body && *before->body == json) {
      data->tag = before->tag;
      data->body = before->body;
    } else {
      data->tag = join('"', started_, '-', ++version_, '"');
      data->body = std::make_shared<const std::string>(std::move(json));
    }
  } catch (const std::exception& error) {  // the run may have just started: the page asks again
    if (before && before->body) {
      data->tag = before->tag;
      data->body = before->body;
    } else {
      data->waiting = join("waiting: ", error.what());
    }
  }
  return data;
}

std::string WatchAnswers::stamp() const {
  std::string text;
  for (const fs::path& run : runs_) {
    for (const char* file : {"", "config.toml", "facts.json", "log.csv", "smoothness.csv", "sweep.csv"}) {
      std::error_code error;
      const fs::path path = *file == '\0' ? run : run / file;
      const auto time = fs::last_write_time(path, error);
      if (error) continue;
      const auto bytes = fs::file_size(path, error);
      text += join(file, ' ', time.time_since_epoch().count(), ' ', error ? 0 : bytes, '\n');
    }
  }
  return text;
}

}  // namespace gluon::lab
