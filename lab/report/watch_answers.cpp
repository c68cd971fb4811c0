#include "lab/report/watch_answers.h"

#include <arpa/inet.h>
#include <time.h>

#include <algorithm>
#include <cctype>

#include "gluon/core/check.h"
#include "gluon/core/hmac.h"
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
  for (const fs::path& run : runs_) GLUON_CHECK(fs::exists(run), "watch: ", run.string(), " does not exist");
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
  WatchAnswer answer = newest()->answer;
  if (answer.status == 200 && answer.tag == request.known) {
    answer.status = 304;
    answer.body = std::make_shared<const std::string>();
  }
  return answer;
}

std::shared_ptr<const WatchAnswers::Data> WatchAnswers::newest() {
  const std::string now = stamp();
  const auto last = [&](bool any) {
    const std::lock_guard lock(mutex_);
    const bool good = data_ && (any || Clock::now() < rest_until_ || data_->stamp == now);
    return good ? data_ : nullptr;
  };
  if (const auto data = last(false)) return data;
  std::unique_lock reading(reading_, std::try_to_lock);
  if (!reading) {
    if (const auto data = last(true)) return data;
    reading.lock();  // wait for the first data
  }
  if (const auto data = last(false)) return data;
  const double start = thread_seconds();
  const auto data = std::make_shared<const Data>(Data{now, read()});
  const std::chrono::duration<double> rest((thread_seconds() - start) / kShare);
  const std::lock_guard lock(mutex_);
  data_ = data;
  rest_until_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(rest);
  return data;
}

WatchAnswer WatchAnswers::read() {
  const bool known = data_ && data_->answer.status == 200;
  try {
    std::string json = report_json(collect_report(runs_, fit_));
    if (known && *data_->answer.body == json) return data_->answer;
    return {.type = "application/json",
            .tag = join('"', started_, '-', ++version_, '"'),
            .body = std::make_shared<const std::string>(std::move(json))};
  } catch (const std::exception& error) {  // the run may have just started: the page asks again
    return known ? data_->answer : words(202, join("waiting: ", error.what()));
  }
}

std::string WatchAnswers::stamp() const {
  std::string text;
  for (const fs::path& run : runs_) {
    for (const char* file :
         {"", "config.toml", "status.json", "facts.json", "log.csv", "smoothness.csv", "sweep.csv"}) {
      std::error_code error;
      const fs::path path = *file == '\0' ? run : run / file;
      const auto time = fs::last_write_time(path, error);
      if (error) continue;
      const auto bytes = fs::file_size(path, error);
      text += join(file, ' ', time.time_since_epoch().count(), ' ', error ? 0 : bytes, '\n');
      // A run that is killed changes no file.
      if (std::string_view(file) == "status.json") text += RunDirectory::is_held(run) ? "held\n" : "free\n";
    }
  }
  return text;
}

}  // namespace gluon::lab
