#include "lab/train/run_status.h"

#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <thread>

#include "gluon/core/atomic_file.h"
#include "tests/expect_error.h"
#include "tests/lab/train/small_config.h"
#include "tests/temporary_folder.h"

namespace gluon::lab {
namespace {

namespace fs = std::filesystem;

// A run whose steps take `pace` seconds each, `slow` in the first 50.
std::vector<LogRow> rows(int64_t count, double pace, double slow) {
  std::vector<LogRow> log;
  double seconds = 0;
  for (int64_t step = 1; step <= count; ++step) {
    seconds += step <= 50 ? slow : pace;
    log.push_back({.step = step, .seconds = seconds});
  }
  return log;
}

class RunStatusTest : public ::testing::Test {
 protected:
  RunStatus read(const std::vector<LogRow>& log = {}, std::optional<int64_t> steps = std::nullopt) {
    note_.clear();
    return read_run_status(path_, log, steps, note_);
  }
  std::string state(const std::vector<LogRow>& log = {}, std::optional<int64_t> steps = std::nullopt) {
    return std::string(run_state_name(read(log, steps).state));
  }

  const TemporaryFolder folder_;
  const fs::path path_ = folder_.path() / "run";
  std::string note_;
};

TEST_F(RunStatusTest, ARunThatNobodyHoldsWasKilled) {
  std::optional<RunDirectory> run = RunDirectory::create(path_, "");
  write_run_status(path_, {.state = RunState::kRunning, .step = 0, .steps = 200}, "now");
  EXPECT_EQ(state(rows(56, 2, 2)), "running");
  EXPECT_EQ(status_text(read(rows(56, 2, 2))), "running, step 56 of 200, 4:48 left");
  EXPECT_EQ(status_text(read()), "running, step 0 of 200");
  run.reset();
  EXPECT_EQ(state(rows(56, 2, 2)), "killed");
  EXPECT_EQ(status_text(read(rows(56, 2, 2))), "killed after step 56 of 200");
  EXPECT_EQ(read(rows(56, 2, 2)).seconds_left, std::nullopt);
}

TEST_F(RunStatusTest, TheTimeLeftFollowsThePaceOfTheLastSteps) {
  const RunDirectory run = RunDirectory::create(path_, "");
  write_run_status(path_, {.state = RunState::kRunning, .step = 0, .steps = 1000}, "now");
  EXPECT_DOUBLE_EQ(*read(rows(200, 3, 90)).seconds_left, 800 * 3);
  EXPECT_DOUBLE_EQ(*read(rows(1, 3, 90)).seconds_left, 999 * 90);
  EXPECT_EQ(*read(rows(1200, 3, 3)).seconds_left, 0);  // resumed with fewer steps
  EXPECT_EQ(read(std::vector<LogRow>(2, LogRow{.step = 0, .seconds = 1})).seconds_left, std::nullopt);
}

TEST_F(RunStatusTest, WithoutTheFileTheLogDecides) {
  RunDirectory::create(path_, "");
  EXPECT_EQ(state(rows(30, 1, 1), 30), "finished");
  EXPECT_EQ(state(rows(29, 1, 1), 30), "unknown");
  EXPECT_EQ(read(rows(29, 1, 1), 30).step, 29);
  EXPECT_EQ(state({}, 30), "unknown");
  EXPECT_EQ(status_text(read()), "");
  EXPECT_EQ(note_, "");
}

TEST_F(RunStatusTest, ADamagedFileIsANote) {
  RunDirectory::create(path_, "");
  const std::string good = R"("step": 1, "steps": 3)";
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]"), std::string("{}"), R"({"state": 3, )" + good + "}",
        R"({"state": "killed", )" + good + "}", R"({"state": "dancing", )" + good + "}",
        std::string(R"({"state": "failed", "step": 1})"), std::string(R"({"state": "failed", "step": -1, "steps": 3})"),
        std::string(R"({"state": "failed", "step": 1.5, "steps": 3})"),
        std::string(R"({"state": "failed", "step": 18446744073709551615, "steps": 3})"),
        std::string(R"({"state": "failed", "step": 1, "steps": 9007199254740993})"), std::string(100000, '['),
        std::string("\xff\0\x01", 3)}) {
    folder_.write("run/status.json", text);
    EXPECT_EQ(state(rows(3, 1, 1), 3), "finished") << text.substr(0, 80);
    EXPECT_NE(note_.find("status.json is damaged"), std::string::npos) << text.substr(0, 80);
  }
  for (const char* target : {"/dev/zero", "/nowhere"}) {
    fs::remove(path_ / "status.json");
    fs::create_symlink(target, path_ / "status.json");
    EXPECT_EQ(state(rows(3, 1, 1), 3), "finished");
  }
  fs::remove(path_ / "status.json");
  ASSERT_EQ(mkfifo((path_ / "status.json").c_str(), 0600), 0);
  EXPECT_EQ(state(rows(2, 1, 1), 3), "unknown");
  EXPECT_NE(note_.find("status.json is damaged"), std::string::npos);
}

TEST_F(RunStatusTest, ALongErrorIsCut) {
  RunDirectory::create(path_, "");
  write_run_status(path_, {.state = RunState::kFailed, .step = 1, .steps = 3, .error = std::string(100000, 'x')},
                   "now");
  EXPECT_EQ(read().error.size(), 2000u);
  folder_.write("run/status.json",
                R"({"state": "failed", "step": 1, "steps": 3, "error": ")" + std::string(100000, 'x') + "\"}");
  EXPECT_EQ(read().error.size(), 2000u);
  folder_.write("run/status.json", R"({"state": "failed", "step": 1, "steps": 3, "error": ["a"], "more": 1})");
  EXPECT_EQ(status_text(read()), "failed after step 1 of 3");
}

// A reader that asks whether a run is held must not keep a writer out.
TEST_F(RunStatusTest, ReadersDoNotKeepAWriterOut) {
  RunDirectory::create(path_, "");
  std::atomic<bool> stop = false;
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      while (!stop) (void)RunDirectory::is_held(path_);
    });
  }
  for (int i = 0; i < 2000; ++i) ASSERT_NO_THROW(RunDirectory::reopen(path_)) << i;
  stop = true;
  for (std::thread& reader : readers) reader.join();
  const int lock = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(::flock(lock, LOCK_EX | LOCK_NB), 0);
  EXPECT_INPUT_ERROR(RunDirectory::reopen(path_), "another process is writing to");
  ::close(lock);
}

TEST_F(RunStatusTest, ATrainerRecordsHowItEnds) {
  TrainConfig config = small_config();
  config.save_every = 1;
  const auto saved = [&] { return nlohmann::json::parse(read_text(path_ / "status.json", "test")); };
  std::atomic<bool> stop = true;
  {
    Trainer trainer = make_trainer(config);
    (void)run(trainer, RunDirectory::create(path_, ""), stop);
    EXPECT_EQ(status_text(read()), "interrupted after step 0 of 3");
    EXPECT_EQ(saved()["started"].get<std::string>().size(), std::string("2026-01-31T12:00:00Z").size());
  }
  Trainer trainer = make_trainer(config);
  stop = false;
  (void)run(trainer, RunDirectory::reopen(path_), stop);
  EXPECT_EQ(status_text(read()), "finished, step 3 of 3");
  EXPECT_EQ(saved()["error"], "");
}

// Whatever is thrown: here the log is a folder.
TEST_F(RunStatusTest, ATrainerRecordsAnyFailure) {
  TrainConfig config = small_config();
  Trainer trainer = make_trainer(config);
  RunDirectory directory = RunDirectory::create(path_, "");
  fs::create_directories(path_ / "log.csv/x");
  EXPECT_ANY_THROW((void)run(trainer, directory));
  const RunStatus status = read();
  EXPECT_EQ(status.state, RunState::kFailed);
  EXPECT_NE(status.error.find("log.csv"), std::string::npos) << status.error;
}

// Nothing may hide the error itself: a status that cannot be written leaves the one before.
TEST_F(RunStatusTest, AFailureOnAFullDiskCountsAsKilled) {
  RunDirectory directory = RunDirectory::create(path_, "");
  std::ostream nowhere(nullptr);
  Progress progress(nowhere, false);
  RunWriter writer(directory, progress, nullptr, 0);
  writer.begin(0, 3);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit full = before;
  full.rlim_cur = 8;
  setrlimit(RLIMIT_FSIZE, &full);
  writer.fail("no space", 1, 3);
  EXPECT_INPUT_ERROR(writer.end(RunState::kFinished, 3, 3), "cannot write");
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(state(), "running");  // this process still holds it
  for (const auto& entry : fs::directory_iterator(path_)) {
    EXPECT_EQ(entry.path().string().find(kTemporaryMark), std::string::npos) << entry.path();
  }
}

}  // namespace
}  // namespace gluon::lab
