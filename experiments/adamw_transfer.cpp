// AdamW as the baseline at the best rate of a grid, beside unScion and Scion on the same data; and the ratio of L1 between
// blocks and embedding along AdamW, from which the paper initialises Scion's radii.

#include <array>

#include "experiments/language.h"
#include "experiments/layer_table.h"
#include "experiments/studies.h"
#include "gluon/core/check.h"
#include "lab/train/run_directory.h"

namespace gluon::experiments {
namespace {

lab::FigureSeries validation(const std::string& label, const lab::RunResult& run, std::size_t color) {
  lab::FigureSeries series{.label = label, .color = lab::run_color(color), .style = lab::LineStyle::kMarked};
  for (const lab::LogRow& row : lab::RunDirectory::open(run.folder).log()) {
    if (!row.val) continue;
    series.x.push_back(static_cast<double>(row.step));
    series.y.push_back(*row.val);
  }
  return series;
}

}  // namespace

lab::StudyResult adamw_transfer(lab::Workbench& bench) {
  lab::StudyResult result;
  result.notes.push_back(scale_note(bench, bench.language()));
  result.notes.emplace_back(
      "AdamW: betas 0.9 and 0.95, clip 1.0, no decay, constant rate, the best of the grid below.");
  lab::TrainConfig config = adamw_baseline(bench);
  config.smoothness_every = bench.pick(10, 50);
  config.smoothness_start = config.smoothness_every;
  config.smoothness_mode = "consecutive";
  constexpr std::array kRates = {4.5e-4, 9e-4, 1.8e-3, 3.6e-3};
  const auto trials = bench.try_values("adamw", config, "lr", kRates);
  const auto& best = lab::best_of(trials);
  const lab::RunResult unscion = bench.train("unscion-consecutive", measured(bench, Estimator::kConsecutive));
  lab::TrainConfig constrained = bench.language();
  constrained.preset = "scion";
  const lab::RunResult scion = bench.train("scion", constrained);

  lab::Table losses{
      "validation loss at the end, constant radii and rates", {"method", "radii or rate", "loss", "training"}, {}};
  const auto add = [&](const std::string& method, const std::string& rate, const lab::RunResult& run) {
    losses.rows.push_back({method, rate, lab::rounded(run.val, 5), join(lab::rounded(run.seconds, 3), " s")});
  };
  add("unscion", "0.018, 1.08", unscion);
  add("scion", "gamma 0.00036, rho 50, 3000", scion);
  for (const auto& trial : trials) add("adamw", lab::rounded(trial.value), trial.result);
  result.tables.push_back(std::move(losses));
  result.findings.push_back({"validation loss of unScion and of AdamW at its best rate",
                             "3.4057 and 3.524 in the authors' logs",
                             join(lab::rounded(unscion.val, 5), " and ", lab::rounded(best.result.val, 5)),
                             "unScion's is lower", lab::verdict(unscion.val < best.result.val)});

  const TrajectoryFit fits = lab::fits_of(best.result, {.lambda = 5});
  const TrajectoryFit errors = lab::fits_of(best.result, {.lambda = 0});
  const double ratio = group_l1(fits, "hidden") / group_l1(fits, "embedding");
  result.findings.push_back({"L1 of the blocks over that of the embedding, along AdamW", "20 to 30",
                             lab::rounded(ratio, 3), "in the paper's range", lab::verdict(ratio >= 20 && ratio <= 30)});
  result.tables.push_back(layer_table(join("AdamW at ", lab::rounded(best.value),
                                           ", in unScion's norms: lambda = 5, "
                                           "relative MSE at lambda = 0"),
                                      fits, errors, type_of));
  result.figures.push_back({.name = "unscion-scion-adamw",
                            .title = "validation loss",
                            .y_label = "loss",
                            .series = {validation("unscion", unscion, 0), validation("scion", scion, 1),
                                       validation("adamw", best.result, 2)}});
  return result;
}

}  // namespace gluon::experiments
