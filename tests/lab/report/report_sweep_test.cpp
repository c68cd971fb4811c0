#include <algorithm>
#include <cmath>

#include "lab/report/report_data.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"

namespace gluon::lab {
namespace {

namespace fs = std::filesystem;

// A sweep over one group with four cells: a good one, two without a loss, and one whose folder is gone.
fs::path make_sweep(const TemporaryFolder& folder) {
  const fs::path sweep = folder.path() / "grid";
  for (const char* cell : {"hidden=0.1", "hidden=0.2", "hidden=1e+39"}) fs::create_directories(sweep / cell);
  folder.write("grid/sweep.csv", "hidden,val,loss,seconds\n0.1,3.5,3,9\n0.2,nan,5,9\n1e+39,nan,nan,0\n0.4,3.75,3,9\n");
  std::string log = "step,tokens,loss,val,seconds\n";
  for (int step = 1; step <= 5000; ++step) {
    log += join(step, ",8,", step == 777 ? 50 : 4, ",", step == 2001 ? "3.5" : "", ",1\n");
  }
  folder.write("grid/hidden=0.1/config.toml", "steps=5000\n");
  folder.write("grid/hidden=0.1/log.csv", log);
  folder.write("grid/hidden=0.2/config.toml", "steps=5000\n");
  folder.write("grid/hidden=0.2/log.csv", "step,tokens,loss,val,seconds\n1,8,5,,1\n");
  folder.write("grid/hidden=0.2/diverged", "the gradient of w is not finite\n");
  folder.write("grid/hidden=1e+39/diverged", "--radius hidden must be in 1e-30..1e+30\n");
  return sweep;
}

ReportSweep collect(const fs::path& path) {
  const std::vector<fs::path> paths{path};
  return collect_report(paths).sweeps.at(0);
}

TEST(ReportSweep, CellsHaveTheirRuns) {
  const TemporaryFolder folder;
  const fs::path path = make_sweep(folder);
  for (const ReportSweep& sweep : {collect(path), collect(path / "sweep.csv")}) {
    EXPECT_EQ(sweep.name, "grid");
    ASSERT_EQ(sweep.cells.size(), 4u);
    ASSERT_TRUE(sweep.cells[0].run);
    EXPECT_EQ(sweep.cells[0].run->name, "hidden=0.1");
    EXPECT_EQ(sweep.cells[0].run->config, "steps=5000\n");
    EXPECT_EQ(sweep.cells[0].failed, "");
    EXPECT_EQ(sweep.cells[1].run->log.size(), 1u);
    EXPECT_EQ(sweep.cells[1].failed, "the gradient of w is not finite");
    EXPECT_FALSE(sweep.cells[2].run);
    EXPECT_EQ(sweep.cells[2].failed, "--radius hidden must be in 1e-30..1e+30");
    EXPECT_FALSE(sweep.cells[3].run);
    EXPECT_EQ(sweep.cells[3].failed, "");
  }
}

TEST(ReportSweep, LogsOfCellsAreThinnedWithoutLosingASpikeOrAnEvaluation) {
  const TemporaryFolder folder;
  const ReportSweep sweep = collect(make_sweep(folder));
  const std::vector<LogRow>& log = sweep.cells[0].run->log;
  EXPECT_LE(log.size(), 400u);
  EXPECT_EQ(log.back().step, 5000);
  EXPECT_TRUE(std::ranges::any_of(log, [](const LogRow& row) { return row.step == 777 && row.loss == 50; }));
  EXPECT_TRUE(std::ranges::any_of(log, [](const LogRow& row) { return row.step == 2001 && row.val == 3.5; }));
}

TEST(ReportSweep, ADamagedCellIsNamedAndTheOthersAreShown) {
  const TemporaryFolder folder;
  const fs::path path = make_sweep(folder);
  folder.write("grid/hidden=0.1/log.csv", "nonsense\n1\n");
  fs::remove(path / "hidden=0.2/diverged");
  folder.write("grid/hidden=0.2/log.csv", "nonsense\n1\n");
  const ReportSweep sweep = collect(path);
  EXPECT_FALSE(sweep.cells[0].run);
  EXPECT_EQ(sweep.cells[0].failed, "") << "it has a loss";
  EXPECT_TRUE(sweep.cells[1].failed.starts_with("its run cannot be read: run: ")) << sweep.cells[1].failed;
}

TEST(ReportSweep, CellsThatHaveBegunAreShownOfLayersByName) {
  const TemporaryFolder folder;
  fs::create_directories(folder.path() / "grid/*.c_q.weight=0.2");
  folder.write("grid/sweep.csv", "*.c_q.weight,val,loss,seconds\n0.1,2,2,1\n");
  folder.write("grid/*.c_q.weight=0.2/config.toml", "steps=5000\n");
  folder.write("grid/*.c_q.weight=0.2/status.json",
               R"({"state": "interrupted", "step": 7, "steps": 5000, "error": ""})");
  const ReportSweep sweep = collect(folder.path() / "grid");
  ASSERT_EQ(sweep.cells.size(), 2u);
  EXPECT_EQ(sweep.table.cells[1].radii, std::vector<double>{0.2});
}

TEST(ReportSweep, CellsThatHaveBegunAreShown) {
  const TemporaryFolder folder;
  const fs::path path = make_sweep(folder);
  for (const char* name : {"hidden=0.8", "hidden=x", "embedding=0.8", "hidden=0.80"}) {
    fs::create_directories(path / name);
    folder.write(std::string("grid/") + name + "/config.toml", "steps=5000\n");
    folder.write(std::string("grid/") + name + "/status.json",
                 R"({"state": "interrupted", "step": 7, "steps": 5000, "error": ""})");
  }
  const ReportSweep sweep = collect(path);
  ASSERT_EQ(sweep.cells.size(), 5u);
  EXPECT_EQ(sweep.table.cells[4].radii, std::vector<double>{0.8});
  EXPECT_TRUE(std::isnan(sweep.table.cells[4].val));
  EXPECT_EQ(sweep.cells[4].failed, "not finished: interrupted after step 7 of 5000");
}

TEST(ReportSweep, LinksAreNotFollowed) {
  const TemporaryFolder folder;
  const fs::path path = make_sweep(folder);
  folder.write("secret", "secret\n");
  fs::remove(path / "hidden=0.2/diverged");
  fs::create_symlink(folder.path() / "secret", path / "hidden=0.2/diverged");
  fs::rename(path / "hidden=0.1", folder.path() / "elsewhere");
  fs::create_directory_symlink(folder.path() / "elsewhere", path / "hidden=0.1");
  const ReportSweep sweep = collect(path);
  EXPECT_FALSE(sweep.cells[0].run);
  EXPECT_EQ(sweep.cells[1].failed, "its validation loss is not finite");
}

TEST(ReportSweep, NoGroupLeadsOutOfTheFolder) {
  const TemporaryFolder folder;
  fs::create_directories(folder.path() / "x=1");
  folder.write("x=1/config.toml", "steps=1\n");
  folder.write("x=1/log.csv", "step,tokens,loss,val,seconds\n1,8,5,,1\n");
  fs::create_directories(folder.path() / "grid");
  folder.write("grid/sweep.csv", "../x,val,loss,seconds\n1,3.5,3,9\n");
  EXPECT_FALSE(collect(folder.path() / "grid").cells.at(0).run);
}

}  // namespace
}  // namespace gluon::lab
