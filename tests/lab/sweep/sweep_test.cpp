#include "lab/sweep/sweep.h"

#include <algorithm>
#include <cmath>

#include "gluon/checkpoint/checkpoint.h"
#include "gluon/core/atomic_file.h"
#include "lab/train/run_status.h"
#include "tests/expect_error.h"
#include "tests/lab/train/small_config.h"
#include "tests/temporary_folder.h"

namespace gluon::lab {
namespace {

SweepOptions options_in(const std::filesystem::path& folder,
                        const std::vector<std::string>& axes = {"hidden=0.01,0.1", "embedding=0.5,1,2"}) {
  SweepOptions options{.axes = {}, .out = folder};
  for (const std::string& axis : axes) options.axes.push_back(parse_axis(axis));
  return options;
}

struct Sweep {
  std::vector<SweepCell> cells;
  std::vector<std::string> lines;
};

Sweep run(const TrainConfig& config, const SweepOptions& options, bool stop = false) {
  std::ostringstream out;
  Progress progress(out, false);
  const std::atomic<bool> stopped{stop};
  Sweep sweep;
  const auto announce = [&](const std::string& line) { sweep.lines.push_back(line); };
  sweep.cells = run_sweep(config, options, progress, announce, stopped);
  return sweep;
}

void remove_files(const std::filesystem::path& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) std::filesystem::remove(entry.path());
}

std::vector<SweepAxis> axes_of(std::size_t count, std::size_t radii) {
  SweepAxis axis{"hidden", {}};
  while (axis.radii.size() < radii) axis.radii.push_back(static_cast<double>(axis.radii.size() + 1));
  return std::vector(count, axis);
}

TEST(Sweep, RunsEveryCellOnce) {
  const TemporaryFolder folder;
  const SweepOptions options = options_in(folder.path());
  const Sweep first = run(small_config(), options);
  ASSERT_EQ(first.cells.size(), 6u);
  EXPECT_EQ(first.cells[1].radii, (std::vector<double>{0.01, 1}));
  EXPECT_EQ(first.lines[1], "[2/6] hidden=0.01,embedding=1");
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "hidden=0.1,embedding=2/checkpoint/latest"));

  std::filesystem::remove(folder.path() / "hidden=0.1,embedding=2/log.csv");
  const Sweep again = run(small_config(), options);
  EXPECT_EQ(again.lines[1], "[2/6] hidden=0.01,embedding=1  is already finished");
  EXPECT_EQ(again.lines[5], "[6/6] hidden=0.1,embedding=2");
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(again.cells[i].val, first.cells[i].val);

  const std::string csv = read_text(folder.path() / "sweep.csv", "test");
  EXPECT_TRUE(csv.starts_with("hidden,embedding,val,loss,seconds\n"));
  EXPECT_EQ(std::ranges::count(csv, '\n'), 7);
}

TEST(Sweep, AStopBeforeTheFirstCellRunsNone) {
  const TemporaryFolder folder;
  EXPECT_TRUE(run(small_config(), options_in(folder.path()), true).cells.empty());
}

TEST(Sweep, ACellThatDivergesIsRecorded) {
  const TemporaryFolder folder;
  const SweepOptions options = options_in(folder.path(), {"embedding=1,1e30"});
  const Sweep sweep = run(small_config(), options);
  ASSERT_EQ(sweep.cells.size(), 2u);
  EXPECT_TRUE(std::isfinite(sweep.cells[0].val));
  EXPECT_TRUE(std::isnan(sweep.cells[1].val));
  EXPECT_NE(cell_failure(folder.path() / "embedding=1e+30"), "");
  EXPECT_EQ(cell_failure(folder.path() / "embedding=1"), "");
  EXPECT_EQ(run(small_config(), options).lines[1], "[2/2] embedding=1e+30  is already finished");
}

TEST(Sweep, ACellBeyondFloat32IsRecordedAndTheOthersRun) {
  const TemporaryFolder folder;
  const Sweep sweep = run(small_config(), options_in(folder.path(), {"hidden=1e39,0.01"}));
  ASSERT_EQ(sweep.cells.size(), 2u);
  EXPECT_TRUE(std::isnan(sweep.cells[0].val));
  EXPECT_TRUE(std::isfinite(sweep.cells[1].val));
  EXPECT_TRUE(sweep.lines[0].starts_with("[1/2] hidden=1e+39  is left out: --radius hidden must be in 1e-30..1e+30"));
  EXPECT_EQ(read_sweep_csv(folder.path() / "sweep.csv").cells.size(), 2u);
  EXPECT_EQ("[1/2] hidden=1e+39  is left out: " + cell_failure(folder.path() / "hidden=1e+39"), sweep.lines[0]);
}

TEST(Sweep, AFailureBeforeTheFirstStepLeavesNoFolder) {
  const TemporaryFolder folder;
  TrainConfig config = small_config();
  config.data = (folder.path() / "missing.txt").string();
  EXPECT_INPUT_ERROR(run(config, options_in(folder.path(), {"hidden=0.01"})), "no file matches");
  EXPECT_INPUT_ERROR(run(small_config(), options_in(folder.path(), {"hidden=0.01", "conv=1"})), "conv=1 has no effect");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Sweep, TheResultsOfAnotherSweepAreKept) {
  const TemporaryFolder folder;
  run(small_config(), options_in(folder.path(), {"hidden=0.01"}));
  const std::string before = read_text(folder.path() / "sweep.csv", "test");
  EXPECT_INPUT_ERROR(run(small_config(), options_in(folder.path(), {"embedding=1"})),
                     "is of a sweep over hidden, this one is over embedding; choose another --out");
  EXPECT_EQ(read_text(folder.path() / "sweep.csv", "test"), before);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "embedding=1"));
}

TEST(Sweep, ACellKilledBeforeItsFirstCheckpointStartsAgain) {
  const TemporaryFolder folder;
  const SweepOptions options = options_in(folder.path(), {"hidden=0.01"});
  run(small_config(), options);
  const std::filesystem::path cell = folder.path() / "hidden=0.01";
  std::filesystem::remove(cell / "log.csv");
  remove_files(cell / "checkpoint");
  EXPECT_EQ(run(small_config(), options).cells.size(), 1u);
}

TEST(Sweep, ACellWhoseLastCheckpointFailedIsNotFinished) {
  const TemporaryFolder folder;
  const SweepOptions options = options_in(folder.path(), {"hidden=0.01"});
  const Sweep whole = run(small_config(), options);
  const std::filesystem::path cell = folder.path() / "hidden=0.01";
  const auto end_as = [&](RunState state) { write_run_status(cell, {.state = state, .step = 3, .steps = 3}, "now"); };
  const auto expect_trained_again = [&] {
    const Sweep again = run(small_config(), options);
    EXPECT_EQ(again.lines[0], "[1/1] hidden=0.01");
    EXPECT_TRUE(has_checkpoint(cell / "checkpoint"));
    EXPECT_EQ(again.cells.at(0).val, whole.cells.at(0).val);
    EXPECT_EQ(again.cells.at(0).loss, whole.cells.at(0).loss);
    EXPECT_EQ(run(small_config(), options).lines[0], "[1/1] hidden=0.01  is already finished");
  };
  for (const RunState state : {RunState::kFailed, RunState::kRunning}) {  // running: the disk had no room for more
    remove_files(cell / "checkpoint");
    end_as(state);
    expect_trained_again();
  }
  end_as(RunState::kRunning);  // killed after its last checkpoint
  expect_trained_again();
}

TEST(Sweep, AFinishedCellNeedsItsCheckpointsOnlyWithoutAStatus) {
  const TemporaryFolder folder;
  const SweepOptions options = options_in(folder.path(), {"hidden=0.01"});
  run(small_config(), options);
  const std::filesystem::path cell = folder.path() / "hidden=0.01";
  const std::string status = read_text(cell / "status.json", "test");
  std::filesystem::remove(cell / "status.json");
  EXPECT_EQ(run(small_config(), options).lines[0], "[1/1] hidden=0.01  is already finished");
  remove_files(cell / "checkpoint");
  write_text_atomically(cell / "status.json", status);
  EXPECT_EQ(run(small_config(), options).lines[0], "[1/1] hidden=0.01  is already finished");
  std::filesystem::remove(cell / "status.json");
  EXPECT_EQ(run(small_config(), options).lines[0], "[1/1] hidden=0.01");
}

TEST(Sweep, TheFolderOfARunIsRefused) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "run";
  RunDirectory::create(path, "");
  EXPECT_INPUT_ERROR(run(small_config(), options_in(path)), "sweep: " + path.string() + " holds a run; choose another");
  EXPECT_FALSE(std::filesystem::exists(path / "sweep.csv"));
}

TEST(Sweep, AGridHasABound) {
  EXPECT_EQ(count_cells(axes_of(2, 100)), kMostCells);
  EXPECT_EQ(count_cells({}), 1u);
  EXPECT_INPUT_ERROR(count_cells(axes_of(3, 60)), "sweep: a grid has at most 10000 cells, these radii give 216000");
  EXPECT_INPUT_ERROR(count_cells(axes_of(400, 100)), "these radii give inf");  // beyond any number
  const TemporaryFolder folder;
  const SweepOptions options{.axes = axes_of(3, 60), .out = folder.path() / "sweep"};
  EXPECT_INPUT_ERROR(run(small_config(), options), "sweep: a grid has at most 10000 cells");
  EXPECT_FALSE(std::filesystem::exists(options.out));
  std::string most = "hidden=1";
  for (std::size_t radius = 2; radius <= kMostCells; ++radius) most += join(",", radius);
  EXPECT_EQ(parse_axis(most).radii.size(), kMostCells);
  EXPECT_INPUT_ERROR(parse_axis(most + ",0.5"), "--radius hidden: a sweep has at most 10000 cells");
}

TEST(Sweep, ASmallerGridKeepsTheOtherRows) {
  const TemporaryFolder folder;
  for (const char* axis : {"hidden=0.01,0.02", "hidden=0.02"}) run(small_config(), options_in(folder.path(), {axis}));
  const std::string text = read_text(folder.path() / "sweep.csv", "test");
  EXPECT_NE(text.find("\n0.01,"), std::string::npos);
  EXPECT_NE(text.find("\n0.02,"), std::string::npos);
}

TEST(Sweep, TheTableMarksTheBest) {
  SweepOptions options = options_in("x");
  options.axes[1].radii.pop_back();
  EXPECT_EQ(sweep_table(options, {{{0.01, 0.5}, 2}, {{0.01, 1}, 1.5}, {{0.1, 0.5}, std::nan("")}}),
            "      hidden  | embedding        0.5          1\n"
            "        0.01  |              2.0000     1.5000*\n"
            "         0.1  |                 nan           -\n");
  options.axes.pop_back();
  EXPECT_EQ(sweep_table(options, {{{0.01}, 2}, {{0.1}, 1.5}}),
            "      hidden        val\n        0.01    2.0000 \n         0.1    1.5000*\n");
}

TEST(Sweep, BadInputIsNamed) {
  EXPECT_INPUT_ERROR(parse_axis("hidden"), "expected group=radius,radius,..., got 'hidden'");
  EXPECT_INPUT_ERROR(parse_axis("hidden="), "expected at least one radius");
  EXPECT_INPUT_ERROR(parse_axis("hidden=1,x"), "--radius hidden: expected a number, got 'x'");
  EXPECT_INPUT_ERROR(parse_axis("hidden=1,1"), "1 is given twice");
  EXPECT_INPUT_ERROR(parse_axis("hidden=1,"), "expected group=radius,radius,..., got 'hidden=1,'");
  const TemporaryFolder folder;
  EXPECT_INPUT_ERROR(run(small_config(), options_in(folder.path(), {})), "expected --radius");
  EXPECT_INPUT_ERROR(run(small_config(), options_in(folder.path(), {"hiden=1,2"})), "unknown radius 'hiden'");
  const SweepOptions options = options_in(folder.path(), {"hidden=0.01"});
  run(small_config(), options);
  TrainConfig longer = small_config();
  longer.steps = 5;
  EXPECT_INPUT_ERROR(run(longer, options), "holds a run with another config");
}

}  // namespace
}  // namespace gluon::lab
