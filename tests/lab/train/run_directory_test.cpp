#include "lab/train/run_directory.h"

#include <ATen/Parallel.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "gluon/core/atomic_file.h"
#include "gluon/version.h"
#include "lab/train/run_status.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"

namespace gluon::lab {
namespace {

LogRow row(int64_t step, std::optional<double> val = std::nullopt) {
  return {step, step * 100, 1.0 / static_cast<double>(step), val, 0.5 * static_cast<double>(step), {{"hidden", 0.25}},
          0.125};
}

class RunDirectoryTest : public ::testing::Test {
 protected:
  RunDirectory create(const std::string& config = "") const { return RunDirectory::create(path_, config); }
  std::string text_of(const std::string& file) const { return read_text(folder_.path() / file, "test"); }
  void expect_log(const std::string& rows) const {
    EXPECT_EQ(text_of("run/log.csv"), "step,tokens,loss,val,seconds,optimizer,radius_hidden\n" + rows);
  }

  const TemporaryFolder folder_;
  const std::filesystem::path path_ = folder_.path() / "run";
};

TEST_F(RunDirectoryTest, TheLogHasTheDocumentedColumns) {
  RunDirectory run = create("steps=3\n");
  run.append(row(1));
  run.append(row(2, 0.75));
  expect_log("1,100,1,,0.5,0.125,0.25\n2,200,0.5,0.75,1,0.125,0.25\n");
  EXPECT_EQ(RunDirectory::open(path_).config(), "steps=3\n");
}

TEST_F(RunDirectoryTest, ARunIsNeverOverwritten) {
  create("a");
  EXPECT_INPUT_ERROR(create("b"), "already holds a run (config.toml); resume it with --resume");
  EXPECT_EQ(text_of("run/config.toml"), "a");
  std::filesystem::create_directory(folder_.path() / "samples");
  folder_.write("samples/smoothness.csv", "precious");
  EXPECT_INPUT_ERROR(RunDirectory::create(folder_.path() / "samples", "b"), "holds a smoothness.csv that a run would");
  EXPECT_INPUT_ERROR(RunDirectory::open(folder_.path() / "other"), "holds no run (no config.toml)");
}

TEST_F(RunDirectoryTest, FilesOfOthersWithTheNamesOfARunAreKept) {
  std::filesystem::create_directory(path_);
  for (const std::string name :
       {"log.csv", "status.json", "facts.json", "report.html", "events.out.tfevents.gluon", "checkpoint"}) {
    folder_.write("run/" + name, "mine");
    EXPECT_INPUT_ERROR(create("a"), "holds a " + name + " that a run would overwrite; move it away or choose another");
    EXPECT_EQ(text_of("run/" + name), "mine");
    EXPECT_FALSE(std::filesystem::exists(path_ / "config.toml"));
    std::filesystem::remove(path_ / name);
  }
  EXPECT_NO_THROW(create("a"));
}

TEST_F(RunDirectoryTest, AFolderOfASweepIsRefused) {
  std::filesystem::create_directory(path_);
  folder_.write("run/sweep.csv", "mine");
  EXPECT_INPUT_ERROR(create("a"), "run holds a sweep (sweep.csv); choose another --out");
  EXPECT_FALSE(std::filesystem::exists(path_ / "config.toml"));
}

TEST_F(RunDirectoryTest, TheNamesOfItsFilesAreKnown) {
  create("a").append(row(1));
  write_run_status(path_, {}, "now");
  for (const auto& entry : std::filesystem::directory_iterator(path_)) {
    EXPECT_TRUE(RunDirectory::is_name(entry.path().filename().string())) << entry.path();
  }
  EXPECT_FALSE(RunDirectory::is_name("tuned.toml"));
  EXPECT_FALSE(RunDirectory::is_name(""));
}

TEST_F(RunDirectoryTest, OneProcessWritesAtATime) {
  std::optional<RunDirectory> first = create("a");
  EXPECT_INPUT_ERROR(RunDirectory::reopen(path_), "another process is writing to");
  EXPECT_INPUT_ERROR(create("b"), "another process is writing to");
  EXPECT_EQ(RunDirectory::open(path_).config(), "a");  // readers are not kept out
  first.reset();
  EXPECT_NO_THROW(RunDirectory::reopen(path_));
}

TEST_F(RunDirectoryTest, AFolderThatCannotBeCreatedIsNamed) {
  folder_.write("file", "x");
  EXPECT_INPUT_ERROR(RunDirectory::create(folder_.path() / "file/run", "a"), "cannot create");
}

TEST_F(RunDirectoryTest, TheLogReadsBack) {
  RunDirectory run = create();
  EXPECT_TRUE(run.log().empty());
  run.append(row(1, std::nan("")));
  run.append(row(2, 0.75));
  const std::vector<LogRow> rows = run.log();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_TRUE(std::isnan(*rows[0].val));
  EXPECT_EQ(rows[1].step, 2);
  EXPECT_EQ(rows[1].tokens, 200);
  EXPECT_EQ(rows[1].loss, 0.5);
  EXPECT_EQ(rows[1].val, 0.75);
  EXPECT_EQ(rows[1].seconds, 1);
  EXPECT_EQ(rows[1].optimizer, 0.125);
  EXPECT_EQ(rows[1].radii, (std::vector<std::pair<std::string, double>>{{"hidden", 0.25}}));
  std::ofstream(path_ / "log.csv", std::ios::app) << "3,4\n";
  EXPECT_INPUT_ERROR(run.log(), "log.csv line 4: expected 7 cells as in the header, got 2");
}

TEST_F(RunDirectoryTest, RewindDropsTheRowsAfterTheCheckpoint) {
  RunDirectory run = create();
  EXPECT_EQ(run.rewind(7), 0);
  for (int64_t step = 1; step <= 4; ++step) run.append(row(step));
  std::ofstream(path_ / "log.csv", std::ios::app) << "5,50";  // half a line of a killed run
  EXPECT_DOUBLE_EQ(run.rewind(2), 1.0);
  expect_log("1,100,1,,0.5,0.125,0.25\n2,200,0.5,,1,0.125,0.25\n");
}

TEST_F(RunDirectoryTest, ALogWithoutTheOptimizerColumnIsContinued) {
  RunDirectory run = create();
  folder_.write("run/log.csv", "step,tokens,loss,val,seconds,radius_hidden\n1,100,1,,0.5,0.25\n");
  EXPECT_EQ(run.log().at(0).optimizer, std::nullopt);
  run.rewind(1);
  run.append(row(2));
  expect_log("1,100,1,,0.5,,0.25\n2,200,0.5,,1,0.125,0.25\n");
}

TEST_F(RunDirectoryTest, TheLastCellMayBeEmpty) {
  RunDirectory run = create();
  run.append({.step = 1, .tokens = 2, .loss = 3, .seconds = 4});
  EXPECT_EQ(run.log().at(0).seconds, 4);
}

TEST_F(RunDirectoryTest, DiscardRemovesOnlyItsOwnFiles) {
  for (const bool notes : {false, true}) {
    RunDirectory run = create("steps=3\n");
    run.set_facts({});
    write_run_status(path_, {}, "now");
    if (notes) folder_.write("run/notes.txt", "mine");
    run.discard();
    EXPECT_EQ(std::filesystem::exists(path_), notes);
  }
  EXPECT_EQ(text_of("run/notes.txt"), "mine");
  EXPECT_FALSE(std::filesystem::exists(path_ / "config.toml"));
}

TEST_F(RunDirectoryTest, FactsDescribeTheRunAndTheMachine) {
  create().set_facts({.device = "cpu", .precision = "float32", .data = "a \"b\"\xff", .routing = "group\nhidden\n"});
  const auto json = nlohmann::json::parse(text_of("run/facts.json"));
  EXPECT_EQ(json["version"], kVersion);
  EXPECT_EQ(json["threads"], at::get_num_threads());
  EXPECT_EQ(json["device"], "cpu");
  EXPECT_EQ(json["precision"], "float32");
  EXPECT_EQ(json["data"], "a \"b\"\uFFFD");
  EXPECT_EQ(json["routing"], "group\nhidden\n");
  EXPECT_TRUE(json["machine"].is_string());
}

}  // namespace
}  // namespace gluon::lab
