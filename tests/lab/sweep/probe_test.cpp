#include "lab/sweep/probe.h"

#include "gluon/core/atomic_file.h"
#include "lab/train/config_fields.h"
#include "tests/expect_error.h"
#include "tests/lab/train/small_config.h"
#include "tests/temporary_folder.h"

namespace gluon::lab {
namespace {

namespace fs = std::filesystem;

TrainConfig run_to_tune(int64_t steps = 3200) {
  TrainConfig run = small_config("sphere");
  run.layers = 1;
  run.width = 16;
  run.seq = 8;
  run.batch = 1;
  run.steps = steps;
  return run;
}

// Probes of a few steps, which say nothing about a model and all about the program.
ProbePlan short_plan(int probes = kMostTrials) {
  return {.run_steps = 3200, .budget = 10, .shortest = 2, .steps = 2, .probes = probes};
}

struct Probes {
  ProbeResult result;
  std::vector<std::string> lines;
};

Probes probes(const TrainConfig& run, const fs::path& out, const ProbePlan& plan = short_plan(), int stop_after = 99) {
  std::ostringstream text;
  Progress progress(text, false);
  std::atomic<bool> stop{false};
  Probes probes;
  const auto announce = [&](const std::string& line) {
    probes.lines.push_back(line);
    stop = static_cast<int>(probes.lines.size()) > stop_after;
  };
  probes.result = run_probes(run, plan, out, progress, announce, stop);
  return probes;
}

TEST(ProbePlan, TheBudgetSaysHowManyProbesAndHowLong) {
  const ProbePlan plan = plan_probes(run_to_tune(8000), 10);
  EXPECT_EQ(plan.probes, 9);
  EXPECT_EQ(plan.steps, 88);
  EXPECT_EQ(plan.sentence(), "tune: up to 9 probes of 88 steps, at most 792 of the run's 8000 steps (9.9 %)");
  EXPECT_EQ(plan_probes(run_to_tune(5760), 10).sentence(),
            "tune: up to 9 probes of 64 steps, at most 576 of the run's 5760 steps (10 %)");
  EXPECT_EQ(plan_probes(run_to_tune(5759), 10).sentence(),
            "tune: up to 8 probes of 64 steps, at most 512 of the run's 5759 steps (8.89 %)");
  EXPECT_EQ(plan_probes(run_to_tune(3200), 10).probes, 5);
  for (const int64_t steps : {320, 777, 3200, 10000, 100001}) {
    for (const double budget : {1.0, 7.5, 10.0, 50.0, 100.0}) {
      const ProbePlan some = plan_probes(run_to_tune(steps), budget);
      EXPECT_LE(100.0 * static_cast<double>(some.probes * some.steps), budget * static_cast<double>(steps));
      EXPECT_TRUE(some.probes == 0 || some.steps >= 64);
    }
  }
}

TEST(ProbePlan, ProbesOfACnnAreLonger) {
  TrainConfig cnn = run_to_tune(5000);
  cnn.model = "cifar-cnn";
  EXPECT_EQ(plan_probes(cnn, 10).sentence(),
            "tune: up to 5 probes of 100 steps, at most 500 of the run's 5000 steps (10 %)");
  cnn.steps = 4999;
  EXPECT_EQ(plan_probes(cnn, 10).probes, 0);
}

TEST(ProbePlan, ABudgetThatIsTooSmallIsSaid) {
  EXPECT_EQ(plan_probes(run_to_tune(3199), 10).sentence(),
            "tune: no probes: the fewest that say something are 5 of 64 steps, 320 in all, and 10 % of the run's 3199 "
            "steps are 319; --budget 11% would hold them");
  EXPECT_EQ(plan_probes(run_to_tune(300), 100).sentence(),
            "tune: no probes: the fewest that say something are 5 of 64 steps, 320 in all, and 100 % of the run's 300 "
            "steps are 300");
  const TemporaryFolder folder;
  TrainConfig run = run_to_tune(300);
  run.radius = "embedding=1.5";
  const Probes none = probes(run, folder.path() / "none", plan_probes(run, 10));
  EXPECT_TRUE(none.lines.empty());
  EXPECT_EQ(none.result.tuned.radius, "factor=1,embedding=1.5");
  EXPECT_FALSE(fs::exists(folder.path() / "none"));
}

TEST(Probe, WithoutProbesTheRunIsCheckedToo) {
  const TemporaryFolder folder;
  const fs::path out = folder.path() / "none";
  TrainConfig run = run_to_tune(300);
  const ProbePlan none = plan_probes(run, 10);
  run.radius = "hidden=0.1";
  EXPECT_INPUT_ERROR(probes(run, out, none), "--radius factor=1 has no effect: nanogpt-tiny has no layers");
  run.radius = "vector=0.1";
  EXPECT_INPUT_ERROR(probes(run, out, none), "--radius vector=0.1 has no effect: nanogpt-tiny has no layers");
  run.radius = "";
  run.data = (folder.path() / "missing.txt").string();
  EXPECT_INPUT_ERROR(probes(run, out, none), "no file matches");
  run.radius = "factor=1e31";  // the first probe is left out
  EXPECT_INPUT_ERROR(probes(run, out), "no file matches");
  EXPECT_FALSE(fs::exists(out));
}

TEST(ProbePlan, ABudgetIsAShareOfTheSteps) {
  EXPECT_EQ(parse_budget("10%"), 10);
  EXPECT_EQ(parse_budget("0.5%"), 0.5);
  EXPECT_EQ(parse_budget("100%"), 100);
  for (const std::string bad :
       {"0%", "200%", "100.01%", "-5%", "abc", "abc%", "%", "", "10", "nan%", "1e999%", "10%%"}) {
    EXPECT_INPUT_ERROR(
        parse_budget(bad),
        "--budget: expected a share of the run's steps above 0% and at most 100%, such as 10%, got '" + bad + "'");
  }
}

TEST(Probe, TunesTheRunAndLeavesTheRestOfItsConfig) {
  const TemporaryFolder folder;
  TrainConfig run = run_to_tune();
  run.eval_every = 7;
  run.smoothness_every = 5;
  run.smoothness_dual = "exact";
  run.on_nan = "skip";
  run.nan_limit = 3;
  run.radius = "embedding=0.5,factor=2";
  const Probes ended = probes(run, folder.path());
  const ProbeResult& result = ended.result;
  EXPECT_EQ(ended.lines[0], "probe 1: factor=2,embedding=0.5");
  EXPECT_EQ(result.search.tried.size(), ended.lines.size());
  TrainConfig expected = run;
  expected.radius = join("factor=", result.factor, ",embedding=0.5");
  EXPECT_EQ(config_toml(result.tuned), config_toml(expected));

  TrainConfig probe = read_run_config(folder.path() / "factor=2,embedding=0.5");
  EXPECT_EQ(probe.steps, 2);
  EXPECT_EQ(probe.eval_every, 2);
  EXPECT_EQ(probe.smoothness_every, 0);
  EXPECT_EQ(probe.on_nan, "error");
  EXPECT_EQ(probe.resolved_schedule().name(), "linear(2,2,0)");
  EXPECT_NEAR(*probe.geometry().rules()[0].radius->constant(), 2 * 0.45 * std::pow(2, -0.4), 1e-12);

  const SweepTable table = read_sweep_csv(folder.path() / "sweep.csv");
  EXPECT_EQ(table.groups, (std::vector<std::string>{"factor", "embedding"}));
  ASSERT_EQ(table.cells.size(), result.search.tried.size());
  for (std::size_t i = 0; i < table.cells.size(); ++i) {
    EXPECT_EQ(table.cells[i].radii[0], result.search.tried[i].factor);
    EXPECT_EQ(table.cells[i].val, result.search.tried[i].loss);
  }
}

TEST(Probe, ContinuesWhereItWasStopped) {
  const TemporaryFolder folder;
  const TrainConfig run = run_to_tune();
  const Probes whole = probes(run, folder.path() / "whole");
  const Probes stopped = probes(run, folder.path() / "stopped", short_plan(), 2);
  EXPECT_TRUE(stopped.result.search.stopped);
  EXPECT_EQ(stopped.result.search.tried.size(), 2u);
  const Probes again = probes(run, folder.path() / "stopped");
  EXPECT_EQ(again.lines[1], "probe 2: factor=8  is already finished");
  EXPECT_EQ(again.lines[2], whole.lines[2]);
  EXPECT_EQ(again.result.tuned.radius, whole.result.tuned.radius);
  for (std::size_t i = 0; i < whole.result.search.tried.size(); ++i) {
    EXPECT_EQ(again.result.search.tried[i].loss, whole.result.search.tried[i].loss);
  }
}

TEST(Probe, OneThatDivergesIsAboveAllOthers) {
  const TemporaryFolder folder;
  TrainConfig run = run_to_tune();
  run.radius = "factor=1e31";
  const Probes ended = probes(run, folder.path() / "one", short_plan(3));
  EXPECT_TRUE(ended.lines[0].starts_with("probe 1: factor=1e+31  is left out: ")) << ended.lines[0];
  EXPECT_TRUE(std::isinf(ended.result.search.tried[0].loss));
  EXPECT_TRUE(std::isinf(ended.result.search.tried[1].loss));
  EXPECT_EQ(ended.result.factor, 1.56e29);
  run.radius = "embedding=1e30,factor=1";
  EXPECT_INPUT_ERROR(probes(run, folder.path() / "all", short_plan(3)),
                     "tune: all 3 probes diverged, from factor 1 to 0.015625; begin lower with --radius factor=...");
}

TEST(Probe, AnAnswerThatMayBeFarFromTheBestSaysWhy) {
  const std::vector<TriedFactor> tried{{1, 2}};
  EXPECT_EQ((ProbeResult{.search = {.tried = tried, .factor = 1, .settled = true}, .factor = 1}).doubt(), "");
  EXPECT_EQ(ProbeResult{.factor = 1}.doubt(), "");
  EXPECT_EQ((ProbeResult{.search = {.tried = tried, .factor = 1, .flat = true}, .factor = 1}).doubt(),
            "the probes do not tell these factors apart; begin elsewhere with --radius factor=...");
  EXPECT_EQ((ProbeResult{.search = {.tried = tried, .factor = 0.64}, .factor = 0.64}).doubt(),
            "the budget ended first; a larger --budget, or --radius factor=0.64 to begin there, goes on");
}

TEST(Probe, BadInputIsNamed) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& toml) {
    TrainConfig run = run_to_tune();
    parse_config_toml(toml, "test", run, {"preset"});
    return probes(run, folder.path() / "refused");
  };
  TrainConfig other = run_to_tune();
  other.preset = "muon";
  EXPECT_INPUT_ERROR(probes(other, folder.path() / "refused"),
                     "tune: --probe finds the factor of preset sphere, got preset muon; add --preset sphere");
  EXPECT_INPUT_ERROR(refused("schedule=constant"),
                     "tune: --probe needs the schedule that belongs to the law, an empty one, got constant");
  EXPECT_INPUT_ERROR(refused("radius=head=power(0.5)"),
                     "tune: --probe takes numbers in --radius, such as factor=2, got head=power(0.5)");
  EXPECT_INPUT_ERROR(refused("radius=hidden=0.1"), "--radius factor=1 has no effect: nanogpt-tiny has no layers");
  EXPECT_FALSE(fs::exists(folder.path() / "refused"));

  TrainConfig run = run_to_tune();
  run.out = (folder.path() / "run").string();
  RunDirectory::create(run.out, config_toml(run));
  EXPECT_INPUT_ERROR(probes(run, run.out), "holds a run; choose another --out for its probes");
  probes(run, folder.path() / "probes");
  run.seed = 1;
  EXPECT_INPUT_ERROR(probes(run, folder.path() / "probes"), "holds a run with another config; choose another --out");
}

}  // namespace
}  // namespace gluon::lab
