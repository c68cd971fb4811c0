#include "lab/reproduce/workbench.h"

#include <array>
#include <cmath>
#include <sstream>

#include "gluon/core/atomic_file.h"
#include "lab/train/config_fields.h"
#include "tests/expect_error.h"
#include "tests/lab/train/small_config.h"
#include "tests/temporary_folder.h"

namespace gluon::lab {
namespace {

namespace fs = std::filesystem;

class WorkbenchTest : public testing::Test {
 protected:
  Workbench make(bool small = true) {
    return {{.data = folder_.path() / "none", .out = folder_.path(), .small = small},
            progress_,
            [this](const std::string& line) { said_.push_back(line); },
            stop_};
  }

  std::string results() const { return read_text(folder_.path() / "results.csv", "test"); }

  TemporaryFolder folder_;
  std::ostringstream out_;
  Progress progress_{out_, false};
  std::vector<std::string> said_;
  std::atomic<bool> stop_{false};
};

TEST_F(WorkbenchTest, ARunIsTrainedOnceAndKeepsNoCheckpoint) {
  Workbench bench = make();
  const RunResult first = bench.train("one", small_config());
  EXPECT_TRUE(std::isfinite(first.val));
  EXPECT_EQ(said_, std::vector<std::string>{"run one"});
  EXPECT_TRUE(fs::exists(folder_.path() / "runs/one/log.csv"));
  EXPECT_FALSE(fs::exists(folder_.path() / "runs/one/checkpoint"));
  EXPECT_TRUE(results().starts_with("name,steps,loss,val,accuracy,seconds\none,3,")) << results();

  Workbench next = make();  // as the same command again
  const RunResult again = next.train("one", small_config());
  EXPECT_EQ(again.val, first.val);
  EXPECT_EQ(again.loss, first.loss);
  EXPECT_FALSE(again.accuracy);
  EXPECT_EQ(said_.size(), 1u);
}

TEST_F(WorkbenchTest, AnotherConfigUnderTheSameNameIsRefused) {
  Workbench bench = make();
  (void)bench.train("one", small_config());
  TrainConfig other = small_config();
  other.seed = 1;
  EXPECT_INPUT_ERROR((void)bench.train("one", other), "holds a run with another config; choose another --out");
}

TEST_F(WorkbenchTest, ItsDataMayBeMovedButNotBeOtherData) {
  const std::string text(20000, 'a');
  for (const char* path : {"a/train.txt", "b/train.txt", "b/other.txt"}) {
    fs::create_directories((folder_.path() / path).parent_path());
    write_text_atomically(folder_.path() / path, text);
  }
  const auto train = [&](const char* path) {
    TrainConfig config = small_config();
    config.data = (folder_.path() / path).string();
    return make().train("one", config).loss;
  };
  const double loss = train("a/train.txt");
  EXPECT_EQ(train("b/train.txt"), loss);
  EXPECT_INPUT_ERROR(train("b/other.txt"), "holds a run with another config; choose another --out");
}

// Stops the run when its first row appears.
class StopAtFirstRow : public std::stringbuf {
 public:
  explicit StopAtFirstRow(std::atomic<bool>& stop) : stop_(stop) {}

 private:
  std::streamsize xsputn(const char* text, std::streamsize count) override {
    stop_ = true;
    return std::stringbuf::xsputn(text, count);
  }

  std::atomic<bool>& stop_;
};

TEST_F(WorkbenchTest, AStoppedRunGoesOnWhereItWas) {
  TrainConfig config = small_config();
  config.eval_every = 1;
  StopAtFirstRow buffer(stop_);
  std::ostream out(&buffer);
  Progress progress(out, false);
  Workbench bench(
      {.data = "none", .out = folder_.path()}, progress, [](const std::string&) {}, stop_);
  EXPECT_THROW((void)bench.train("one", config), Stopped);
  EXPECT_FALSE(fs::exists(folder_.path() / "results.csv"));
  EXPECT_TRUE(fs::exists(folder_.path() / "runs/one/checkpoint/latest"));

  stop_ = false;
  const RunResult whole = make().train("one", config);
  const TemporaryFolder elsewhere;
  Workbench fresh(
      {.data = "none", .out = elsewhere.path()}, progress_, [](const std::string&) {}, stop_);
  EXPECT_EQ(fresh.train("one", config).val, whole.val);
}

TEST_F(WorkbenchTest, ARunWithNaNCountsAsDivergedAndIsNotRepeated) {
  TrainConfig config = small_config();
  config.radius = "hidden=1e20,embedding=1e20";
  config.steps = 20;
  const auto check = [&] {
    const RunResult result = make().train("wild", config);
    EXPECT_TRUE(std::isnan(result.val));
    EXPECT_TRUE(std::isnan(result.loss));  // 0 would be the lowest of all
  };
  check();
  const std::size_t lines = said_.size();
  check();
  EXPECT_EQ(said_.size(), lines);
}

TEST_F(WorkbenchTest, TwoProcessesInOneFolderKeepEachOthersResults) {
  Workbench one = make(), other = make();
  (void)one.train("a", small_config());
  const double val = other.train("b", small_config()).val;
  EXPECT_EQ(one.train("b", small_config()).val, val);
  EXPECT_EQ(said_, (std::vector<std::string>{"run a", "run b"}));
  EXPECT_NE(results().find("\na,"), std::string::npos) << results();
  EXPECT_NE(results().find("\nb,"), std::string::npos) << results();
}

TEST_F(WorkbenchTest, ACheckpointGoesOnlyWhenTheResultIsWritten) {
  // When the run begins, a folder takes the place of the results.
  const auto block = [this](const std::string&) { fs::create_directories(folder_.path() / "results.csv"); };
  Workbench bench({.data = "none", .out = folder_.path()}, progress_, block, stop_);
  EXPECT_INPUT_ERROR((void)bench.train("one", small_config()), "reproduce: cannot read ");
  EXPECT_TRUE(fs::exists(folder_.path() / "runs/one/checkpoint/latest"));
}

TEST_F(WorkbenchTest, TriesValuesAndFindsTheBest) {
  Workbench bench = make();
  constexpr std::array kRadii = {1e-6, 0.02};
  const auto trials = bench.try_values("grid", small_config(), "hidden", kRadii);
  ASSERT_EQ(trials.size(), 2u);
  EXPECT_EQ(trials[0].value, 1e-6);
  EXPECT_EQ(best_of(trials).value, trials[0].result.val < trials[1].result.val ? 1e-6 : 0.02);
  EXPECT_EQ(read_run_config(folder_.path() / "runs/grid-0.02").radius, "hidden=0.02");
  TrainConfig adamw = small_config("adamw");
  (void)bench.try_values("rates", adamw, "lr", std::array{1e-3});
  EXPECT_EQ(read_run_config(folder_.path() / "runs/rates-0.001").lr, 1e-3);
  EXPECT_INPUT_ERROR((void)best_of(std::array{Workbench::Trial{1, {.val = std::nan("")}}}), "all 1 runs have diverged");
}

TEST_F(WorkbenchTest, SmallStudiesRunOnTheProjectsSourcesAndFullOnesNeedTheText) {
  EXPECT_EQ(make().language().model, "nanogpt-tiny");
  Workbench bench = make();
  EXPECT_EQ(bench.language().data, "");
  EXPECT_EQ(bench.language().data, "");
  EXPECT_EQ(said_.size(), 2u);  // by each Workbench once
  EXPECT_THROW((void)make(false).language(), MissingMaterial);
  EXPECT_THROW((void)make().images(), MissingMaterial);
}

}  // namespace
}  // namespace gluon::lab
