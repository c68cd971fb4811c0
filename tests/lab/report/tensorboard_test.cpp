#include "lab/report/tensorboard.h"

#include "lab/train/event_file.h"
#include "tests/expect_error.h"
#include "tests/lab/train/read_events.h"
#include "tests/temporary_folder.h"

namespace gluon::lab {
namespace {

ReportData one_run() {
  ReportRun run{.name = "runs/a"};
  run.log = {{.step = 1, .loss = 5, .seconds = 10}, {.step = 2, .loss = 4, .seconds = 20}};
  ReportLayer layer;
  layer.name = "h.0.q";
  layer.samples = {{.step = 1, .smoothness = 3, .gradient = 2}, {.step = 2, .smoothness = 6, .alignment = 0.5}};
  run.layers = {layer};
  return {{}, {run}, {}};
}

TEST(Tensorboard, LogAndSamplesOfEachRun) {
  const TemporaryFolder folder;
  EXPECT_EQ(write_tensorboard(one_run(), folder.path() / "events"), 1u);
  const std::vector<ReadEvent> events = read_events(bytes_of(folder.path() / "events/runs_a" / kEventFile));
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[1].scalars.at("loss/training"), 5);
  EXPECT_EQ(events[3].step, 1);
  EXPECT_EQ(events[3].scalars, (std::map<std::string, float>{{"gradient/h.0.q", 2}, {"smoothness/h.0.q", 3}}));
  EXPECT_EQ(events[4].scalars, (std::map<std::string, float>{{"alignment/h.0.q", 0.5}, {"smoothness/h.0.q", 6}}));
  EXPECT_EQ(events[4].wall_time - events[3].wall_time, 10);
}

TEST(Tensorboard, RejectsUsedFoldersAndReportsWithoutRuns) {
  const TemporaryFolder folder;
  folder.write("file", "");
  EXPECT_INPUT_ERROR(write_tensorboard(one_run(), folder.path()), "--tensorboard needs a new or empty folder");
  EXPECT_INPUT_ERROR(write_tensorboard({}, folder.path() / "new"), "--tensorboard needs a run");
}

}  // namespace
}  // namespace gluon::lab
