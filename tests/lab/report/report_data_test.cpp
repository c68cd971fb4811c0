#include "lab/report/report_data.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>

#include "gluon/smoothness/trajectory.h"
#include "tests/expect_error.h"
#include "tests/lab/data/shared_data.h"
#include "tests/temporary_folder.h"

namespace gluon::lab {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kHeader =
    "step,layer,group,norm,dual_method,estimator,gradient_change,displacement,smoothness,gradient,momentum,"
    "alignment,radius\n";

// Lhat = 3 + 2 |g|*, and a layer without gradients.
const std::string kSamples = std::string(kHeader) +
                             "1,h.0.w.weight,hidden,\"scaled(2,spectral)\",exact,same_batch,,1,5,1,,0.5,0.1\n"
                             "2,h.0.w.weight,hidden,\"scaled(2,spectral)\",exact,same_batch,,1,7,2,,0.6,0.1\n"
                             "3,h.0.w.weight,hidden,\"scaled(2,spectral)\",exact,same_batch,,1,11,4,,0.7,0.1\n"
                             "1,still,hidden,spectral,exact,same_batch,1,1,1,0,0,,0.1\n"
                             "2,still,hidden,spectral,exact,same_batch,1,1,1,0,0,,0.1\n";

ReportData collect(const std::vector<fs::path>& paths, const FitOptions& fit = {}) {
  return collect_report(paths, fit);
}

fs::path make_run(const TemporaryFolder& folder, const std::string& name, bool samples) {
  const fs::path run = folder.path() / name;
  fs::create_directories(run);
  folder.write(name + "/config.toml", "steps=2\n");
  folder.write(name + "/log.csv", "step,tokens,loss,val,seconds,radius_hidden\n1,8,5,,1,0.1\n2,16,4,4.1,2,0.1\n");
  if (samples) folder.write(name + "/smoothness.csv", kSamples);
  return run;
}

TEST(ReportData, NoteOnDamagedFacts) {
  const TemporaryFolder folder;
  const fs::path run = make_run(folder, "a", false);
  for (const std::string& facts : {std::string("{\"version\": "), std::string(R"({"data": 1, "data": 2})"),
                                   std::string(3'000'000, '[') + std::string(3'000'000, ']')}) {
    folder.write("a/facts.json", facts);
    const ReportData data = collect({run});
    EXPECT_EQ(data.runs[0].facts, "");
    EXPECT_NE(data.runs[0].notes.at(0).find("facts.json is damaged"), std::string::npos);
  }
}

// Opened, it would wait for a writer.
TEST(ReportData, APipeInThePlaceOfAFileIsRefused) {
  const TemporaryFolder folder;
  const fs::path run = make_run(folder, "a", true);
  for (const char* file : {"smoothness.csv", "log.csv", "config.toml"}) {
    fs::remove(run / file);
    ASSERT_EQ(mkfifo((run / file).c_str(), 0600), 0);
    EXPECT_INPUT_ERROR(collect({run}), "cannot read " + (run / file).string() + ": it is not a regular file");
    fs::remove(run / file);
    (void)make_run(folder, "a", true);
  }
}

TEST(ReportData, EveryRunHasAStatus) {
  const TemporaryFolder folder;
  const fs::path run = make_run(folder, "a", false);
  const auto state = [&] { return std::string(run_state_name(collect({run}).runs[0].status.state)); };
  EXPECT_EQ(state(), "finished");  // by its log: two of two steps
  folder.write("a/config.toml", "steps=3\n");
  EXPECT_EQ(state(), "unknown");
  write_run_status(run, {.state = RunState::kRunning, .step = 0, .steps = 3}, "now");
  EXPECT_EQ(state(), "killed");
  folder.write("a/status.json", "nonsense");
  EXPECT_EQ(state(), "unknown");
  EXPECT_NE(collect({run}).runs[0].notes.at(0).find("status.json is damaged"), std::string::npos);
}

TEST(ReportData, SettingsAreResolved) {
  const TemporaryFolder folder;
  const fs::path run = make_run(folder, "a", false);
  const auto has = [&](const std::string& key, const std::string& value) {
    const Settings settings = collect({run}).runs[0].settings;
    return std::find(settings.begin(), settings.end(), std::pair(key, value)) != settings.end();
  };
  EXPECT_TRUE(has("radius", "hidden=0.018, embedding=1.08"));
  folder.write("a/config.toml", "preset=nonsense\n");
  EXPECT_TRUE(has("preset", "nonsense"));
}

TEST(ReportData, ARunThatFailedInItsFirstStepIsShown) {
  const TemporaryFolder folder;
  fs::create_directories(folder.path() / "a");
  folder.write("a/config.toml", "steps=30\n");
  write_run_status(folder.path() / "a", {.state = RunState::kFailed, .step = 0, .steps = 30, .error = "NaN"}, "now");
  const ReportRun run = collect({folder.path() / "a"}).runs.at(0);
  EXPECT_TRUE(run.log.empty());
  EXPECT_EQ(status_text(run.status), "failed after step 0 of 30: NaN");
}

TEST(ReportData, RunWithSamples) {
  const TemporaryFolder folder;
  const ReportData data = collect({make_run(folder, "a", true)});
  ASSERT_EQ(data.runs.size(), 1u);
  const ReportRun& run = data.runs[0];
  EXPECT_EQ(run.name, "a");
  EXPECT_EQ(run.config, "steps=2\n");
  EXPECT_EQ(run.log.size(), 2u);
  EXPECT_EQ(run.estimator, Estimator::kSameBatch);
  ASSERT_EQ(run.layers.size(), 2u);
  EXPECT_EQ(run.layers[0].place.block, 0);
  ASSERT_TRUE(run.layers[0].fit);
  EXPECT_NEAR(run.layers[0].fit->l0, 3, 1e-9);
  EXPECT_NEAR(run.layers[0].fit->l1, 2, 1e-9);
  EXPECT_EQ(run.layers[0].samples.size(), 3u);
  EXPECT_FALSE(run.layers[1].fit);
  EXPECT_EQ(run.layers[1].unfitted, "all 2 gradients are zero, so L1 is undetermined");
  ASSERT_EQ(run.radii.size(), 1u);
  EXPECT_NEAR(run.radii[0].predicted, 2.0 / 7, 1e-9);
  EXPECT_NEAR(run.radii[0].used, 0.1, 1e-12);
}

TEST(ReportData, RunWithoutSamplesHasLossesAndANote) {
  const TemporaryFolder folder;
  const ReportData data = collect({make_run(folder, "a", false)});
  EXPECT_EQ(data.runs[0].log.size(), 2u);
  ASSERT_EQ(data.runs[0].notes.size(), 1u);
  EXPECT_NE(data.runs[0].notes[0].find("--smoothness-every"), std::string::npos);
}

TEST(ReportData, SamplesAndSweepsWithoutARun) {
  const TemporaryFolder folder;
  make_run(folder, "a", true);
  folder.write("sweep.csv", "hidden,embedding,val,loss,seconds\n0.1,1,3.5,3.4,9\n0.2,1,nan,nan,9\n");
  const ReportData data = collect({folder.path() / "a/smoothness.csv", folder.path()});
  ASSERT_EQ(data.runs.size(), 1u);
  EXPECT_EQ(data.runs[0].name, "a");
  EXPECT_TRUE(data.runs[0].config.empty());
  ASSERT_EQ(data.sweeps.size(), 1u);
  EXPECT_EQ(data.sweeps[0].table.groups, (std::vector<std::string>{"hidden", "embedding"}));
  EXPECT_EQ(data.sweeps[0].table.cells[0].val, 3.5);
  EXPECT_TRUE(std::isnan(data.sweeps[0].table.cells[1].val));
}

TEST(ReportData, RunsWithTheSameNameGetPaths) {
  const TemporaryFolder folder;
  const ReportData data = collect({make_run(folder, "x/a", false), make_run(folder, "y/a", false)});
  EXPECT_NE(data.runs[0].name, data.runs[1].name);
}

TEST(ReportData, BadInput) {
  const TemporaryFolder folder;
  EXPECT_INPUT_ERROR(collect({}), "report: expected at least one run");
  EXPECT_INPUT_ERROR(collect({folder.path() / "none"}), "does not exist");
  EXPECT_INPUT_ERROR(collect({folder.path()}), "holds neither a run (config.toml) nor a sweep (sweep.csv)");
  const fs::path run = make_run(folder, "a", false);
  EXPECT_INPUT_ERROR(collect({run, folder.path() / "a/../a"}), "is given twice");
  EXPECT_INPUT_ERROR(collect({run}, {.lambda = -1}), "lambda must be in [0, 1e6], got -1");
  fs::create_directories(folder.path() / "empty");
  folder.write("empty/config.toml", "");
  EXPECT_INPUT_ERROR(collect({folder.path() / "empty"}), "has neither a log nor samples yet");
  folder.write("sweep.csv", "hidden,val,loss\n");
  EXPECT_INPUT_ERROR(collect({folder.path()}), "is not a sweep: expected the columns GROUP,...,val,loss,seconds");
  folder.write("sweep.csv", "hidden,val,loss,seconds\n0.1,3\n");
  EXPECT_INPUT_ERROR(collect({folder.path()}), "sweep.csv line 2: expected 4 cells as in the header, got 2");
  folder.write("sweep.csv", "hidden,val,loss,seconds\n");
  EXPECT_INPUT_ERROR(collect({folder.path()}), "has no finished cell yet");
}

TEST(ReportData, PaperLogHasTheConstantsOfTheFit) {
  GLUON_SHARED_DATA_OR_SKIP(shared, "paper-logs");
  const fs::path log = shared / "nanogpt-unscion.txt";
  const ReportData data = collect({log});
  const TrajectoryFit fits = fit_trajectory(read_trajectory(log));
  const ReportRun& run = data.runs[0];
  ASSERT_EQ(run.layers.size(), 73u);
  ASSERT_EQ(fits.layers.size(), 73u);
  for (std::size_t i = 0; i < 73; ++i) {
    EXPECT_EQ(run.layers[i].name, fits.layers[i].layer);
    EXPECT_EQ(run.layers[i].fit->l1, fits.layers[i].fit.l1);
    EXPECT_EQ(run.layers[i].samples.size(), 99u);
  }
  ASSERT_FALSE(run.log.empty());
  EXPECT_EQ(run.log.front().step, 0);
  EXPECT_EQ(run.log.front().val, 16.0102);
  EXPECT_NEAR(run.log.front().seconds, 0.292, 1e-9);
  EXPECT_EQ(run.log.back().step, 4950);
}

TEST(LayerPlace, FromNamesAndFromNumbersOfPaperLogs) {
  struct Case {
    std::string layer;
    std::size_t paper_layers;
    int block;
    std::string type;
  };
  for (const auto& [layer, paper_layers, block, type] : {Case{"blocks.3.attn.q.weight", 0, 3, "attn.q"},
                                                         {"transformer.h.11.mlp.c_fc.weight", 0, 11, "mlp.c_fc"},
                                                         {"layers.1.norm1.bias", 0, 1, "norm1.bias"},
                                                         {"experts.2.0.weight", 0, 2, "0"},
                                                         {"transformer.wte.weight", 0, -1, "transformer.wte"},
                                                         {"weight", 0, -1, "weight"},
                                                         {"7", 0, -1, "7"},
                                                         {"", 0, -1, ""},
                                                         {"h.99999999999999.w", 0, -1, "h.99999999999999.w"},
                                                         {"0", 73, 0, "attn.c_q"},
                                                         {"24", 73, 4, "attn.c_q"},
                                                         {"71", 73, 11, "mlp.c_proj"},
                                                         {"72", 73, -1, "wte"},
                                                         {"5", 14, -1, "5"}}) {
    const LayerPlace place = place_of(layer, paper_layers);
    EXPECT_EQ(place.block, block) << layer;
    EXPECT_EQ(place.type, type);
  }
}

LayerTrajectory layer(const std::string& name, const std::string& group, std::vector<Sample> samples) {
  return {.layer = name, .group = group, .norm = "spectral", .dual_method = "exact", .samples = std::move(samples)};
}

LayerFit fit(const std::string& name, double l0, double l1) { return {.layer = name, .fit = {.l0 = l0, .l1 = l1}}; }

TEST(GroupHistory, MediansOverTheLayersOfAGroupAtEachStep) {
  const Trajectory trajectory{
      .layers = {
          layer("a", "hidden",
                {{.step = 2, .gradient = 1, .alignment = 0.2, .radius = 0.1}, {.step = 4, .gradient = 3}}),
          layer("head", "head", {{.step = 2, .gradient = 5, .alignment = 0.9}}),
          layer("b", "hidden", {{.step = 2, .gradient = 2, .alignment = 0.4, .radius = 0.3}}),
      }};
  const std::vector<GroupHistory> histories = group_histories(trajectory, {.layers = {fit("a", 1, 1), fit("b", 0, 4)}});
  ASSERT_EQ(histories.size(), 2u);
  EXPECT_EQ(histories[0].group, "hidden");
  EXPECT_EQ(histories[0].steps, (std::vector<int64_t>{2, 4}));
  EXPECT_DOUBLE_EQ(histories[0].alignment[0], 0.3);
  EXPECT_DOUBLE_EQ(histories[0].used[0], 0.2);
  EXPECT_DOUBLE_EQ(histories[0].predicted[0], (0.5 + 0.25) / 2);
  EXPECT_TRUE(std::isnan(histories[0].alignment[1]));
  EXPECT_DOUBLE_EQ(histories[0].predicted[1], 0.75);
  EXPECT_EQ(histories[1].group, "head");
  EXPECT_TRUE(std::isnan(histories[1].predicted[0]));  // it has no fit
}

TEST(GroupHistory, NoPredictionWhenTheGradientNeverChanged) {
  const Trajectory trajectory{.layers = {layer("a", "hidden", {{.step = 1, .gradient = 1}})}};
  const std::vector<GroupHistory> histories = group_histories(trajectory, {.layers = {fit("a", 0, 0)}});
  EXPECT_TRUE(std::isnan(histories.at(0).predicted.at(0)));
}

}  // namespace
}  // namespace gluon::lab
