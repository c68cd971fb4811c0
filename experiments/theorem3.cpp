// Theorem 3 prescribes radii t_i (k+1)^(-3/4) and momentum beta_k = 1 - (k+1)^(-1/2). Practice keeps both constant, or lets
// the radii fall linearly. Which reaches the lower loss, each at the best of a grid?

#include <array>

#include "experiments/language.h"
#include "experiments/studies.h"
#include "gluon/core/check.h"

namespace gluon::experiments {
namespace {

constexpr std::array kPower = {0.05, 0.2, 0.8}, kConstant = {0.009, 0.018, 0.036}, kLinear = {0.018, 0.036, 0.072};
constexpr double kEmbedding = 60;  // times the blocks' radius, as the paper's 1.08 / 0.018

}  // namespace

lab::StudyResult theorem3(lab::Workbench& bench) {
  lab::StudyResult result;
  lab::TrainConfig config = bench.language();
  config.steps = bench.pick(200, 1150);
  result.notes.push_back(scale_note(bench, config));
  config.eval_every = config.steps;
  lab::Table table{
      join("validation loss after ", config.steps, " steps"), {"radii of the blocks", "momentum", "loss"}, {}};
  const auto best = [&](const std::string& name, const std::string& rule, const auto& radii) {
    std::vector<lab::Workbench::Trial> trials;
    for (const double radius : radii) {
      const auto text = [&](double value) { return rule.empty() ? join(value) : join(rule, "(", value, ")"); };
      config.radius = join("hidden=", text(radius), ",embedding=", text(kEmbedding * radius));
      const lab::RunResult run = bench.train(join("theorem3-", name, "-", radius), config);
      trials.push_back({radius, run});
      table.rows.push_back({join(text(radius), ", ", config.schedule),
                            config.momentum.empty() ? "ema(0.9)" : config.momentum, lab::rounded(run.val, 5)});
    }
    return lab::best_of(trials).result.val;
  };
  config.momentum = "theorem3";
  const double power = best("power", "power", kPower);
  config.momentum.clear();
  const double constant = best("constant", "", kConstant);
  config.schedule = join("linear(", config.steps, ",", config.steps, ")");
  const double linear = best("linear", "", kLinear);
  result.findings.push_back({"theorem 3's radii and momentum against constant ones, each at its best",
                             "a rate of K^(-1/4); no experiment",
                             join(lab::rounded(power, 5), " against ", lab::rounded(constant, 5)),
                             "theorem 3's loss is at most 1 % higher", lab::verdict(power <= 1.01 * constant)});
  result.findings.push_back({"radii that fall linearly to 0 against constant ones", "no experiment",
                             join(lab::rounded(linear, 5), " against ", lab::rounded(constant, 5)), "lower",
                             lab::verdict(linear < constant)});
  result.tables.push_back(std::move(table));
  return result;
}

}  // namespace gluon::experiments
