#include "lab/train/run_directory.h"

#include <cmath>
#include <fstream>
#include <sstream>

#include "tests/expect_error.h"
#include "tests/temporary_folder.h"

namespace gluon::lab {
namespace {

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

LogRow row(int64_t step, std::optional<double> val = std::nullopt) {
  return {step, step * 100, 1.0 / static_cast<double>(step), val, 0.5 * static_cast<double>(step), {{"hidden", 0.25}},
          0.125};
}

TEST(RunDirectory, TheLogHasTheDocumentedColumns) {
  const TemporaryFolder folder;
  RunDirectory run = RunDirectory::create(folder.path() / "run", "steps=3\n");
  run.append(row(1));
  run.append(row(2, 0.75));
  EXPECT_EQ(text_of(folder.path() / "run/log.csv"),
            "step,tokens,loss,val,seconds,optimizer,radius_hidden\n"
            "1,100,1,,0.5,0.125,0.25\n2,200,0.5,0.75,1,0.125,0.25\n");
  EXPECT_EQ(RunDirectory::open(folder.path() / "run").config(), "steps=3\n");
}

TEST(RunDirectory, ARunIsNeverOverwritten) {
  const TemporaryFolder folder;
  RunDirectory::create(folder.path() / "run", "a");
  EXPECT_INPUT_ERROR(RunDirectory::create(folder.path() / "run", "b"),
                     "already holds a run (config.toml); resume it with --resume");
  EXPECT_EQ(text_of(folder.path() / "run/config.toml"), "a");
  std::filesystem::create_directory(folder.path() / "samples");
  std::ofstream(folder.path() / "samples/smoothness.csv") << "precious";
  EXPECT_INPUT_ERROR(RunDirectory::create(folder.path() / "samples", "b"), "already holds a run (smoothness.csv)");
  EXPECT_INPUT_ERROR(RunDirectory::open(folder.path() / "other"), "holds no run (no config.toml)");
}

TEST(RunDirectory, OneProcessWritesAtATime) {
  const TemporaryFolder folder;
  std::optional<RunDirectory> first = RunDirectory::create(folder.path() / "run", "a");
  EXPECT_INPUT_ERROR(RunDirectory::reopen(folder.path() / "run"), "another process is writing to");
  EXPECT_INPUT_ERROR(RunDirectory::create(folder.path() / "run", "b"), "another process is writing to");
  EXPECT_EQ(RunDirectory::open(folder.path() / "run").config(), "a");  // readers are not kept out
  first.reset();
  EXPECT_NO_THROW(RunDirectory::reopen(folder.path() / "run"));
}

TEST(RunDirectory, AFolderThatCannotBeCreatedIsNamed) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "file") << "x";
  EXPECT_INPUT_ERROR(RunDirectory::create(folder.path() / "file/run", "a"), "cannot create");
}

TEST(RunDirectory, TheLogReadsBack) {
  const TemporaryFolder folder;
  RunDirectory run = RunDirectory::create(folder.path() / "run", "");
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
  std::ofstream(folder.path() / "run/log.csv", std::ios::app) << "3,4\n";
  EXPECT_INPUT_ERROR(run.log(), "log.csv line 4: expected 7 cells as in the header, got 2");
}

TEST(RunDirectory, RewindDropsTheRowsAfterTheCheckpoint) {
  const TemporaryFolder folder;
  RunDirectory run = RunDirectory::create(folder.path() / "run", "");
  for (int64_t step = 1; step <= 4; ++step) run.append(row(step));
  std::ofstream(folder.path() / "run/log.csv", std::ios::app) << "5,50";  // half a line of a killed run
  EXPECT_DOUBLE_EQ(run.rewind(2), 1.0);
  EXPECT_EQ(text_of(folder.path() / "run/log.csv"),
            "step,tokens,loss,val,seconds,optimizer,radius_hidden\n"
            "1,100,1,,0.5,0.125,0.25\n2,200,0.5,,1,0.125,0.25\n");
  EXPECT_EQ(RunDirectory::create(folder.path() / "empty", "").rewind(7), 0);
}

TEST(RunDirectory, ALogWithoutTheOptimizerColumnIsContinued) {
  const TemporaryFolder folder;
  RunDirectory run = RunDirectory::create(folder.path() / "run", "");
  folder.write("run/log.csv", "step,tokens,loss,val,seconds,radius_hidden\n1,100,1,,0.5,0.25\n");
  EXPECT_EQ(run.log().at(0).optimizer, std::nullopt);
  run.rewind(1);
  run.append(row(2));
  EXPECT_EQ(text_of(folder.path() / "run/log.csv"),
            "step,tokens,loss,val,seconds,optimizer,radius_hidden\n"
            "1,100,1,,0.5,,0.25\n2,200,0.5,,1,0.125,0.25\n");
}

TEST(RunDirectory, DiscardRemovesOnlyItsOwnFiles) {
  const TemporaryFolder folder;
  const auto discard = [](const std::filesystem::path& path) {
    RunDirectory run = RunDirectory::create(path, "steps=3\n");
    run.set_facts("{}");
    run.discard();
  };
  discard(folder.path() / "run");
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "run"));
  std::filesystem::create_directory(folder.path() / "mine");
  std::ofstream(folder.path() / "mine" / "notes.txt") << "mine";
  discard(folder.path() / "mine");
  EXPECT_EQ(text_of(folder.path() / "mine" / "notes.txt"), "mine");
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "mine" / "config.toml"));
}

TEST(RunDirectory, TheLastCellMayBeEmpty) {
  const TemporaryFolder folder;
  RunDirectory run = RunDirectory::create(folder.path() / "run", "");
  run.append({.step = 1, .tokens = 2, .loss = 3, .val = {}, .seconds = 4, .radii = {}, .optimizer = {}});
  EXPECT_EQ(run.log().at(0).seconds, 4);
}

}  // namespace
}  // namespace gluon::lab
