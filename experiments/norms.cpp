// The paper's ablation: are the line's errors larger in Euclidean norms than in each layer's own?

#include <tuple>

#include "experiments/language.h"
#include "experiments/layer_table.h"
#include "experiments/studies.h"
#include "gluon/smoothness/trajectory.h"

namespace gluon::experiments {

lab::StudyResult norms(lab::Workbench& bench) {
  lab::StudyResult result;
  result.notes.push_back(scale_note(bench, bench.language()));
  result.notes.emplace_back(
      "Both runs take the same steps, with the same number of threads; only the norms that measure differ. As in the "
      "paper lambda = 0, and the first "
      "sample is left out for Euclidean norms.");
  lab::TrainConfig config = measured(bench, Estimator::kConsecutive);
  const lab::RunResult special = bench.train("unscion-consecutive", config);
  config.smoothness_geometry = "normalized_descent";
  const lab::RunResult euclidean = bench.train("unscion-euclidean", config);
  const TrajectoryFit of_special = lab::fits_of(special, {.lambda = 0, .skip_first = 0});
  const TrajectoryFit of_euclidean = lab::fits_of(euclidean, {.lambda = 0, .skip_first = 1});
  const auto error = [](const LayerFit& layer) { return layer.fit.mse_rel; };
  const Spread ours = spread_of(values_of(of_special, type_of, "", error));
  const Spread theirs = spread_of(values_of(of_euclidean, type_of, "", error));
  result.findings.push_back({"relative MSE in specialised norms, all layers", "0.0003 to 0.0065 in six layers",
                             text_of(ours), "below 0.0065 in nine of ten layers", lab::verdict(ours.high <= 0.0065)});
  result.findings.push_back({"relative MSE in Euclidean norms, all layers", "0.0133 to 0.051 in six layers",
                             text_of(theirs), "the median lies in the paper's range",
                             lab::verdict(theirs.median >= 0.0133 && theirs.median <= 0.051)});
  result.findings.push_back({"Euclidean over specialised, medians", "an order of magnitude",
                             lab::rounded(theirs.median / ours.median, 3), "at least 5",
                             lab::verdict(theirs.median >= 5 * ours.median)});
  result.tables.push_back(layer_table("specialised norms, lambda = 0", of_special, of_special, type_of));
  result.tables.push_back(layer_table("Euclidean norms, lambda = 0", of_euclidean, of_euclidean, type_of));
  for (const auto& [prefix, run, fits] :
       {std::tuple("specialised", &special, &of_special), std::tuple("euclidean", &euclidean, &of_euclidean)}) {
    for (lab::Figure& figure : layer_figures(prefix, read_trajectory(run->folder), *fits)) {
      result.figures.push_back(std::move(figure));
    }
  }
  return result;
}

}  // namespace gluon::experiments
