#include "lab/report/watch_answers.h"

#include <time.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "lab/train/run_status.h"
#include "tests/expect_error.h"
#include "tests/lab/report/watched_run.h"

namespace gluon::lab {
namespace {

WatchRequest get(const std::string& path) { return {.method = "GET", .path = path, .host = "127.0.0.1:7007"}; }

// CPU time of this thread.
double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

TEST_F(WatchTest, PageAndData) {
  const WatchAnswer page = answers_->answer(get("/"));
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.type, "text/html; charset=utf-8");
  EXPECT_NE(page.body->find("connect-src 'self'"), std::string::npos);
  const WatchAnswer data = answers_->answer(get("/data.json"));
  EXPECT_EQ(data.status, 200);
  EXPECT_EQ(nlohmann::json::parse(*data.body)["runs"][0]["log"]["loss"]["value"], (std::vector<double>{5, 4}));
}

TEST_F(WatchTest, UnchangedDataIsNotSentAgain) {
  WatchRequest request = get("/data.json");
  request.known = answers_->answer(request).tag;
  EXPECT_NE(request.known, "");
  EXPECT_EQ(answers_->answer(request).status, 304);
  EXPECT_EQ(*answers_->answer(request).body, "");
  append("3,24,3,,3\n");
  // It pauses before it reads again; the tag changes with the data.
  WatchAnswer data = answers_->answer(request);
  for (int i = 0; data.status == 304 && i < 3000; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    data = answers_->answer(request);
  }
  EXPECT_EQ(data.status, 200);
  EXPECT_NE(data.tag, request.known);
  EXPECT_NE(data.body->find("[5.0,4.0,3.0]"), std::string::npos);
}

TEST_F(WatchTest, RunWithoutDataYet) {
  const TemporaryFolder folder;
  folder.write("config.toml", "steps=2\n");
  WatchAnswers answers({folder.path()}, {}, "");
  const WatchAnswer data = answers.answer(get("/data.json"));
  EXPECT_EQ(data.status, 202);
  EXPECT_TRUE(data.body->starts_with("waiting for a run; "));
}

TEST_F(WatchTest, AKilledRunIsSeenThoughNoFileChanges) {
  std::optional<RunDirectory> process = RunDirectory::reopen(run());
  write_run_status(run(), {.state = RunState::kRunning, .step = 0, .steps = 9}, "now");
  const auto state = [&] {
    return nlohmann::json::parse(*answers_->answer(get("/data.json")).body)["runs"][0]["status"]["state"];
  };
  EXPECT_EQ(state(), "running");
  process.reset();
  for (int i = 0; state() == "running" && i < 3000; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(state(), "killed");
}

TEST_F(WatchTest, DamagedFilesKeepTheLastData) {
  const double start = thread_seconds();
  const WatchAnswer before = answers_->answer(get("/data.json"));
  // After this pause the next answer reads the files.
  const std::chrono::duration<double> rest((thread_seconds() - start) / WatchAnswers::kShare);
  std::this_thread::sleep_for(rest);
  append("nonsense\n");
  const WatchAnswer after = answers_->answer(get("/data.json"));
  EXPECT_EQ(after.status, 200);
  EXPECT_EQ(after.tag, before.tag);
  EXPECT_EQ(*after.body, *before.body);
  EXPECT_EQ(WatchAnswers({run()}, {}, "").answer(get("/data.json")).status, 202) << "the file is not damaged";
}

TEST_F(WatchTest, OtherPathsAndMethodsAreErrors) {
  for (const char* path :
       {"/log.csv", "/../log.csv", "//", "/data.json/", "/./data.json", "", "data.json", "/config.toml"}) {
    EXPECT_EQ(answers_->answer(get(path)).status, 404) << path;
  }
  for (const char* method : {"POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "get", ""}) {
    WatchRequest request = get("/data.json");
    request.method = method;
    EXPECT_EQ(answers_->answer(request).status, 405) << method;
  }
}

TEST_F(WatchTest, WithoutATokenOnlyLoopbackHosts) {
  const auto status = [&](const std::string& host) {
    return answers_->answer({.method = "GET", .path = "/", .host = host}).status;
  };
  for (const char* host : {"localhost", "localhost:7007", "127.0.0.1", "127.9.9.9:1", "[::1]:7007", ""})
    EXPECT_EQ(status(host), 200) << host;
  for (const char* host : {"evil.example", "evil.example:7007", "127.0.0.1.evil.example", "192.168.1.1", "[::2]", "["})
    EXPECT_EQ(status(host), 403) << host;
}

TEST_F(WatchTest, TokenAllowsOtherHosts) {
  WatchAnswers answers({run()}, {}, "a-token-of-some-length");
  WatchRequest request{.method = "GET", .path = "/data.json", .host = "machine.example"};
  EXPECT_EQ(answers.answer(request).status, 401);
  for (const char* wrong : {"a-token-of-some-lengtH", "a-token-of-some-length ", "a"}) {
    request.token = wrong;
    EXPECT_EQ(answers.answer(request).status, 401) << wrong;
  }
  request.token = "a-token-of-some-length";
  EXPECT_EQ(answers.answer(request).status, 200);
}

TEST_F(WatchTest, BadInput) {
  EXPECT_INPUT_ERROR(WatchAnswers({"/nonexistent/run"}, {}, ""),
                     "watch: /nonexistent/run does not exist, nor does /nonexistent");
  EXPECT_INPUT_ERROR(WatchAnswers({}, {}, ""), "watch: expected at least one run");
}

TEST(WatchOptions, BadOptions) {
  const auto check = [](const std::string& host, const std::string& token, int port = 7007) {
    WatchOptions{.host = host, .port = port, .token = token}.validate();
  };
  for (const char* host : {"127.0.0.1", "::1", "localhost"}) check(host, "");
  check("0.0.0.0", "0123456789abcdef");
  for (const char* host : {"0.0.0.0", "::", "192.168.1.2", "machine.example", "127.0.0.1.evil.example", ""})
    EXPECT_INPUT_ERROR(check(host, ""), "is open to other machines and needs a --token");
  EXPECT_INPUT_ERROR(check("0.0.0.0", "short"), "--token must have at least 16 characters, got 5");
  EXPECT_INPUT_ERROR(check("0.0.0.0", "0123456789abcdef&x=1"), "because it is part of an address");
  EXPECT_INPUT_ERROR(check("127.0.0.1", "", 65536), "--port must be in 0..65535 (0 takes a free one), got 65536");
}

}  // namespace
}  // namespace gluon::lab
