#include "lab/report/report_json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "gluon/core/check.h"

namespace gluon::lab {
namespace {

ReportRun run_with(std::size_t rows) {
  ReportRun run{.name = "a</script><b>", .path = "runs/a", .config = "steps=2\n"};
  for (std::size_t i = 0; i < rows; ++i) {
    LogRow row{.step = static_cast<int64_t>(i), .tokens = 8, .loss = 1.0 / 3, .seconds = 1, .radii = {{"hidden", 0.1}}};
    if (i % 2 == 0) row.val = i == 4 ? std::nan("") : 2.5;
    run.log.push_back(row);
  }
  return run;
}

nlohmann::json parsed(const ReportRun& run, const ReportLimits& limits = {}) {
  return nlohmann::json::parse(report_json({{}, {run}, {}}, limits))["runs"][0];
}

TEST(ReportJson, IsSafeInsideAScriptElement) {
  const std::string text = report_json({{}, {run_with(3)}, {}});
  EXPECT_EQ(text.find('<'), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(text)["runs"][0]["name"], "a</script><b>");
}

TEST(ReportJson, CurvesHaveSevenDigitsAndNullForNan) {
  const auto log = parsed(run_with(6))["log"];
  EXPECT_EQ(log["loss"]["value"].size(), 6u);
  EXPECT_EQ(log["loss"]["value"][0], 0.3333333);
  EXPECT_EQ(log["val"]["step"], (std::vector<int>{0, 2, 4}));
  EXPECT_TRUE(log["val"]["value"][2].is_null());
  EXPECT_EQ(log["radii"]["hidden"]["value"][5], 0.1);
}

TEST(ReportJson, FitsSayWhatTheyLeftOutAndWhatToDoubt) {
  ReportRun run = run_with(1);
  run.layers.push_back({.name = "w", .fit = Fit{.left_out = 2, .doubt = "most are below"}});
  run.radii.push_back({.group = "hidden", .doubt = "none can be trusted"});
  EXPECT_EQ(parsed(run)["layers"][0]["fit"]["leftOut"], 2);
  EXPECT_EQ(parsed(run)["layers"][0]["fit"]["doubt"], "most are below");
  EXPECT_EQ(parsed(run)["radii"][0]["doubt"], "none can be trusted");
  EXPECT_TRUE(nlohmann::json::parse(report_json({{}, {run}, {}}))["fit"]["skipFirst"].is_null());
  EXPECT_EQ(nlohmann::json::parse(report_json({{.skip_first = 0}, {run}, {}}))["fit"]["skipFirst"], 0);
}

TEST(ReportJson, SettingsArePairs) {
  ReportRun run = run_with(1);
  run.settings = {{"preset", "scion"}, {"data", "</script>"}};
  EXPECT_EQ(parsed(run)["settings"].dump(), R"([["preset","scion"],["data","</script>"]])");
}

TEST(ReportJson, StatusHasNullForWhatIsUnknown) {
  ReportRun run = run_with(1);
  EXPECT_EQ(parsed(run)["status"].dump(), R"({"error":"","secondsLeft":null,"state":"unknown","step":0,"steps":null})");
  run.status = {.state = RunState::kRunning, .step = 56, .steps = 200, .seconds_left = 80.5};
  EXPECT_EQ(parsed(run)["status"].dump(), R"({"error":"","secondsLeft":80.5,"state":"running","step":56,"steps":200})");
}

TEST(ReportJson, LongSeriesAreThinned) {
  ReportRun run = run_with(5000);
  run.log[3210].loss = 99;
  ReportLayer layer{.name = "w"};
  for (int i = 0; i < 3000; ++i) layer.samples.push_back({.step = i, .smoothness = i == 1234 ? -7.0 : 1.0});
  run.layers.push_back(layer);
  const auto json = parsed(run, {.log_points = 100, .layer_samples = 50});
  const std::vector<double> loss = json["log"]["loss"]["value"];
  EXPECT_LE(loss.size(), 100u);
  EXPECT_NE(std::find(loss.begin(), loss.end(), 99), loss.end());
  const auto& thinned = json["layers"][0];
  const std::vector<int> steps = thinned["step"];
  EXPECT_LE(steps.size(), 50u);
  EXPECT_EQ(thinned["smoothness"].size(), steps.size());
  EXPECT_NE(std::find(steps.begin(), steps.end(), 1234), steps.end());
  EXPECT_TRUE(thinned["fit"].is_null());
}

// 5000 steps with three radii, and 1000 samples of each of 16 layers in three groups.
ReportRun long_run() {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> noise(0, 1);
  ReportRun run{.name = "nanogpt-tiny-scion-1", .path = "runs/nanogpt-tiny-scion-1", .config = std::string(1500, 'c')};
  run.facts = R"({"machine": "m", "routing": ")" + std::string(3000, 'r') + "\"}";
  for (int64_t step = 1; step <= 5000; ++step) {
    run.log.push_back({.step = step,
                       .tokens = step * 16384,
                       .loss = 2 + noise(random),
                       .seconds = noise(random) + static_cast<double>(step),
                       .radii = {{"embedding", noise(random)}, {"head", noise(random)}, {"hidden", noise(random)}},
                       .optimizer = noise(random)});
    if (step % 50 == 0) run.log.back().val = 2 + noise(random);
  }
  for (int i = 0; i < 16; ++i) {
    ReportLayer layer{.name = join("blocks.", i / 4, ".attention.weight"), .group = "hidden", .fit = Fit{}};
    for (int k = 0; k < 1000; ++k)
      layer.samples.push_back({.step = 5 * k, .smoothness = noise(random), .gradient = noise(random)});
    run.layers.push_back(layer);
  }
  for (const char* group : {"hidden", "embedding", "head"}) {
    GroupHistory history{.group = group};
    for (int k = 0; k < 1000; ++k) {
      history.steps.push_back(5 * k);
      for (auto* values : {&history.alignment, &history.used, &history.predicted}) values->push_back(noise(random));
    }
    run.histories.push_back(history);
  }
  return run;
}

TEST(ReportJson, FiftyLongRunsHaveLessThanTenMegabytes) {
  ReportData data;
  ReportRun run = long_run();
  run.log[3210].loss = 99;
  data.runs.assign(50, run);
  const std::string text = report_json(data);
  constexpr std::size_t kPage = 500'000;  // the page without data has less
  EXPECT_LT(text.size() + kPage, 10'000'000u);
  EXPECT_GT(text.size(), 3'000'000u) << "it could show more";
  const auto last = nlohmann::json::parse(text)["runs"][49];
  const std::vector<double> loss = last["log"]["loss"]["value"];
  EXPECT_GE(loss.size(), 250u);
  EXPECT_NE(std::find(loss.begin(), loss.end(), 99), loss.end());
  EXPECT_GE(last["layers"][0]["step"].size(), 100u);
  data.runs.resize(1);
  EXPECT_GE(nlohmann::json::parse(report_json(data))["runs"][0]["log"]["loss"]["step"].size(), 1300u)
      << "a single one is shown finely";
}

TEST(ReportJson, ManyCellsAreThinnedFurther) {
  ReportSweep sweep{"grid", {{"hidden"}, {}}, {}};
  ReportRun run = long_run();
  run.layers.clear();
  run.histories.clear();
  run.log.resize(400);
  for (int i = 0; i < 400; ++i) {
    sweep.table.cells.push_back({.radii = {1.0 + i}, .val = 3});
    sweep.cells.push_back({run, ""});
  }
  EXPECT_LT(report_json({{}, {}, {sweep}}).size(), 8'000'000u);
}

TEST(ReportJson, SweepsHaveTheRunsOfTheirCellsAndTheBest) {
  ReportSweep sweep{"grid",
                    {{"hidden"},
                     {{.radii = {1}, .val = 3},
                      {.radii = {2}, .val = std::nan("")},
                      {.radii = {4}, .val = 2.5},
                      {.radii = {8}, .val = HUGE_VAL}}},
                    {}};
  const auto json = [&] { return nlohmann::json::parse(report_json({{}, {}, {sweep}}))["sweeps"][0]; };
  EXPECT_EQ(json()["best"], 2);
  EXPECT_TRUE(json()["cells"][0]["run"].is_null());
  EXPECT_EQ(json()["cells"][1]["failed"], "");
  sweep.cells = {{run_with(6), ""}, {{}, "the gradient is not finite"}, {run_with(2), ""}, {{}, "too large"}};
  EXPECT_EQ(json()["cells"][0]["run"]["log"]["loss"]["value"].size(), 6u);
  EXPECT_TRUE(json()["cells"][0]["run"]["layers"].empty());
  EXPECT_EQ(json()["cells"][1]["failed"], "the gradient is not finite");
  EXPECT_TRUE(json()["cells"][1]["val"].is_null());
  sweep.table.cells = {{.radii = {1}, .val = std::nan("")}};
  EXPECT_TRUE(json()["best"].is_null());
}

TEST(ReportJson, FactsAreNullWithoutFacts) {
  ReportRun run = run_with(1);
  EXPECT_TRUE(parsed(run)["facts"].is_null());
  run.facts = R"({"machine": "m"})";
  EXPECT_EQ(parsed(run)["facts"]["machine"], "m");
}

}  // namespace
}  // namespace gluon::lab
