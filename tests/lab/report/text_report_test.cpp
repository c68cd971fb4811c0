#include "lab/report/text_report.h"

#include <gtest/gtest.h>

#include <cmath>

namespace gluon::lab {
namespace {

TEST(Sparkline, ScalesFromSmallestToLargest) {
  const std::vector<double> rising = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(sparkline(rising, 8), "▁▂▃▄▅▆▇█");
  EXPECT_EQ(sparkline(rising, 2), "▁█");
  EXPECT_EQ(sparkline(rising, 100), "▁▂▃▄▅▆▇█");
}

TEST(Sparkline, FlatEmptyAndNotFinite) {
  EXPECT_EQ(sparkline(std::vector<double>{2, 2}, 4), "▁▁");
  EXPECT_EQ(sparkline(std::vector<double>{}, 4), "");
  EXPECT_EQ(sparkline(std::vector<double>{1, std::nan(""), HUGE_VAL, 2}, 4), "▁  █");
}

TEST(TextReport, ShowsLossesLayersRadiiNotesAndSweeps) {
  ReportRun run{.name = "a"};
  run.log = {{.step = 1, .tokens = 8, .loss = 5, .val = {}, .seconds = 1, .radii = {}},
             {.step = 2, .tokens = 16, .loss = 4, .val = 4.5, .seconds = 2, .radii = {}}};
  run.layers.resize(2);
  run.layers[0].name = "w";
  run.layers[0].fit = Fit{.l0 = 3, .l1 = 2, .mse_rel = 0.25, .violations = 0.5, .samples = 2};
  run.layers[1].name = "b";
  run.layers[1].unfitted = "all 2 gradients are zero";
  run.layers[0].fit->doubt = "99 % of the samples are below";
  run.radii.push_back({.group = "hidden", .layers = 1, .predicted = 0.5, .used = 0.25, .doubt = "of its only fit"});
  run.notes = {"Something is missing."};
  run.status = {.state = RunState::kFailed, .step = 2, .steps = 30, .error = "a NaN"};
  const ReportSweep sweep{"grid",
                          {{"hidden"}, {{.radii = {1}, .val = std::nan("")}, {.radii = {2}, .val = 3.5}}},
                          {{{}, "the gradient is\nnot finite"}, {}}};
  const std::string text = text_report({{}, {run}, {sweep}});
  for (const char* part : {"  failed after step 2 of 30: a NaN\n", "steps 2, tokens 16",
                           "doubtful: 99 % of the samples are below\n", "doubtful: of its only fit\n", "relative MSE",
                           "first 5, last 4, least 4", "50 %", "not fitted: all 2 gradients are zero",
                           "note: Something is missing.", "3.5  best\n", "-  the gradient is\\nnot finite\n"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
  }
  EXPECT_LT(text.find("3.5"), text.find("the gradient is"));
}

TEST(TextReport, ObeysNoNames) {
  const std::string evil = "\033[2J\n\xff";
  ReportRun run{.name = evil};
  run.layers.resize(1);
  run.layers[0] = {.name = evil, .unfitted = "no samples"};
  run.radii.push_back({.group = evil, .layers = 1, .predicted = 0.5, .used = 0.25});
  run.notes = {evil};
  run.status = {.state = RunState::kFailed, .error = evil};
  const ReportSweep sweep{evil, {{evil}, {{.radii = {1}, .val = 2}}}};
  const std::string text = text_report({{}, {run}, {sweep}});
  EXPECT_EQ(text.find('\033'), std::string::npos);
  EXPECT_EQ(text.find('\xff'), std::string::npos);
  EXPECT_NE(text.find("\\x1b[2J\\n\\xff"), std::string::npos);
}

}  // namespace
}  // namespace gluon::lab
