#include "lab/report/figures.h"

#include <algorithm>
#include <cmath>

#include "gluon/core/atomic_file.h"
#include "lab/report/palette.h"
#include "lab/train/event_file.h"
#include "tests/expect_error.h"
#include "tests/lab/train/read_events.h"
#include "tests/temporary_folder.h"

namespace gluon::lab {
namespace {

ReportData small_report() {
  ReportRun run{.name = "runs/a"};
  run.log = {{.step = 1, .loss = 5, .val = 4.5, .radii = {{"hidden", 0.1}}, .optimizer = 0.2}};
  run.histories = {{.group = "hidden", .steps = {1}, .alignment = {0.5}, .used = {0.1}, .predicted = {0.3}},
                   {.group = "adam", .steps = {1}, .alignment = {0.7}, .used = {std::nan("")}, .predicted = {0.4}}};
  for (const char* name : {"h.0.q/x", "h.0.q:x"}) {
    ReportLayer layer{.name = name, .place = {0, "q"}, .fit = Fit{.l0 = 1, .l1 = 2}};
    layer.samples = {{.step = 1, .smoothness = 3, .gradient = 1}};
    run.layers.push_back(layer);
  }
  return {{}, {run}, {{"grid", {{"hidden", "embedding"}, {{.radii = {1, 2}, .val = 3}}}}}};
}

TEST(Figures, NamesAreUniqueFileNames) {
  const std::vector<Figure> figures = report_figures(small_report());
  std::vector<std::string> names;
  for (const Figure& figure : figures) names.push_back(figure.name);
  EXPECT_EQ(names, (std::vector<std::string>{"loss", "runs_a-layer-h.0.q_x", "runs_a-layer-h.0.q_x-2",
                                             "runs_a-blocks-q", "runs_a-radii", "runs_a-optimizer", "runs_a-alignment",
                                             "runs_a-predicted-radii"}));
  EXPECT_EQ(figures[1].title, "h.0.q/x");
  EXPECT_EQ(figures[1].subtitles, std::vector<std::string>{"L0 = 1, L1 = 2, relative MSE 0"});
  EXPECT_EQ(figures[1].series[1].y, (std::vector<double>{3}));
}

TEST(Figures, SayWhatAFitLeavesOutAndWhatSpeaksAgainstIt) {
  ReportData data = small_report();
  data.runs[0].layers[0].fit->left_out = 1;
  data.runs[0].layers[0].fit->doubt = "most samples are far below";
  const Figure figure = report_figures(data)[1];
  ASSERT_EQ(figure.subtitles.size(), 3u);
  EXPECT_EQ(figure.subtitles[1], "1 sample left out at the start");
  EXPECT_EQ(figure.subtitles[2], "doubtful: most samples are far below");
  EXPECT_NE(figure_svg(figure).find(">doubtful: most samples are far below</text>"), std::string::npos);
}

TEST(Figures, GroupHistories) {
  const std::vector<Figure> figures = report_figures(small_report());
  EXPECT_EQ(figure_csv(figures[5]), "series,x,y\noptimizer,1,0.2\n");
  EXPECT_EQ(figure_csv(figures[6]), "series,x,y\nhidden,1,0.5\nadam,1,0.7\n");
  EXPECT_EQ(figure_csv(figures[7]),
            "series,x,y\n\"hidden, used\",1,0.1\n\"hidden, predicted\",1,0.3\n\"adam, predicted\",1,0.4\n");
}

TEST(Figures, LooksAreThoseOfThePage) {
  ReportData data = small_report();
  data.runs.push_back(data.runs[0]);
  data.runs[1].name = "runs/b";
  data.runs[1].log[0].val.reset();
  const std::vector<Figure> figures = report_figures(data);
  const std::vector<FigureSeries>& loss = figures[0].series;
  ASSERT_EQ(loss.size(), 3u);
  EXPECT_EQ(loss[0].style, LineStyle::kFaint) << "training";
  EXPECT_EQ(loss[1].style, LineStyle::kMarked) << "validation";
  EXPECT_EQ(loss[0].full_name(), "runs/a, training");
  EXPECT_EQ(loss[1].full_name(), "runs/a, validation");
  EXPECT_EQ(loss[2].full_name(), "runs/b, training") << "it has no validation loss";
  EXPECT_EQ(loss[0].color, run_color(0));
  EXPECT_EQ(loss[2].color, run_color(1));
  const auto figure = [&](const std::string& name) {
    return *std::ranges::find_if(figures, [&](const Figure& one) { return one.name == name; });
  };
  EXPECT_EQ(figure("runs_b-layer-h.0.q_x").series[0].color, run_color(1));
  EXPECT_EQ(figure("runs_b-layer-h.0.q_x").series[1].color, kFitColor);
  for (const char* name : {"runs_a-radii", "runs_a-alignment", "runs_b-predicted-radii"}) {
    EXPECT_EQ(figure(name).series[0].color, group_color("hidden")) << name;
  }
  EXPECT_EQ(figure("runs_a-predicted-radii").series[0].style, LineStyle::kLine);
  EXPECT_EQ(figure("runs_a-predicted-radii").series[1].style, LineStyle::kDashed);
}

TEST(Figures, SweepsWithTheSameFileNameAreAllWritten) {
  const TemporaryFolder folder;
  const SweepTable table{{"hidden"}, {{.radii = {1}, .val = 3}}};
  EXPECT_EQ(write_figures({{}, {}, {{"x/a", table, {}}, {"x:a", table, {}}}, {}}, folder.path() / "figures"), 2u);
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "figures/sweep-x_a.svg"));
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "figures/sweep-x_a-2.csv"));
}

TEST(Figures, NoDataGivesNoFigures) { EXPECT_TRUE(report_figures({{}, {ReportRun{.name = "empty"}}, {}}).empty()); }

TEST(Figures, WritesIntoANewFolder) {
  const TemporaryFolder folder;
  EXPECT_EQ(write_figures(small_report(), folder.path() / "figures"), 9u);
  for (const char* file : {"loss.svg", "loss.csv", "runs_a-radii.svg", "sweep-grid.svg", "sweep-grid.csv"}) {
    EXPECT_TRUE(std::filesystem::exists(folder.path() / "figures" / file)) << file;
  }
  EXPECT_INPUT_ERROR(write_figures(small_report(), folder.path() / "figures"), "needs a new or empty folder");
}

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
  const std::vector<ReadEvent> events = read_events(read_text(folder.path() / "events/runs_a" / kEventFile, "test"));
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
