// Does the paper's stochastic estimator, which takes g_k and g_{k+1} from different batches, measure curvature? If it does,
// L1 does not depend on the radius of the run, and L1 t grows with t. The noise between batches alone gives
// Lhat t / |g|* = sqrt(2) at every radius.

#include <algorithm>

#include "experiments/language.h"
#include "experiments/layer_table.h"
#include "experiments/studies.h"
#include "gluon/core/check.h"

namespace gluon::experiments {

lab::StudyResult estimator(lab::Workbench& bench) {
  lab::StudyResult result;
  lab::TrainConfig shorter = bench.language();
  shorter.steps = bench.pick(150, 920);
  result.notes.push_back(scale_note(bench, shorter));
  result.notes.emplace_back(
      "L1 t = 1 means that the predicted radius 1 / L1 is the one that the run used, whatever that was.");
  lab::Table table{
      "L1 t at three radii (L0 = 0, lambda = 0, all but the first three samples)",
      {"radii", "validation loss", "hidden: same_batch", "consecutive", "embedding: same_batch", "consecutive"},
      {}};
  double smallest = 1e300, largest = 0;
  for (const double factor : {0.25, 1.0, 4.0}) {
    const double hidden = 0.018 * factor, embedding = 1.08 * factor;
    std::vector<double> products;
    double val = 0;
    for (const Estimator mode : {Estimator::kSameBatch, Estimator::kConsecutive}) {
      lab::TrainConfig config = measured(bench, mode);
      config.steps = shorter.steps;
      config.radius = join("hidden=", hidden, ",embedding=", embedding);
      const lab::RunResult run = bench.train(join("estimator-", estimator_name(mode), "-", factor), config);
      const TrajectoryFit fits = lab::fits_of(run, {.lambda = 0, .l0_zero = true, .skip_first = 3});
      products.push_back(group_l1(fits, "hidden") * hidden);
      products.push_back(group_l1(fits, "embedding") * embedding);
      val = run.val;
    }
    smallest = std::min(smallest, products[2]);
    largest = std::max(largest, products[2]);
    table.rows.push_back({join(hidden, ", ", embedding), lab::rounded(val), lab::rounded(products[0], 3),
                          lab::rounded(products[2], 3), lab::rounded(products[1], 3), lab::rounded(products[3], 3)});
  }
  result.findings.push_back({"`consecutive`, hidden: L1 t over radii that differ by a factor of 16",
                             "predicted radii are those of tuning (\"a theory with predictive power\")",
                             join(lab::rounded(smallest, 3), " to ", lab::rounded(largest, 3)),
                             "L1 t follows the radius: it changes by more than a factor of 2",
                             lab::verdict(largest > 2 * smallest)});
  result.tables.push_back(std::move(table));
  return result;
}

}  // namespace gluon::experiments
