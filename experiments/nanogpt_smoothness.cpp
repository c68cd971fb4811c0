// The paper's main experiment: NanoGPT with unScion at constant radii 0.018 / 1.08, samples of Lhat every 50 steps, fits
// of L0 and L1, and the radii that follow from them.

#include <cmath>

#include "experiments/language.h"
#include "experiments/layer_table.h"
#include "experiments/studies.h"
#include "gluon/core/check.h"
#include "gluon/smoothness/trajectory.h"

namespace gluon::experiments {

lab::StudyResult nanogpt_smoothness(lab::Workbench& bench) {
  lab::StudyResult result;
  result.notes.push_back(scale_note(bench, bench.language()));
  for (const Estimator mode : {Estimator::kConsecutive, Estimator::kSameBatch}) {
    const std::string name(estimator_name(mode));
    const lab::RunResult run = bench.train("unscion-" + name, measured(bench, mode));
    const TrajectoryFit fits = lab::fits_of(run, {.lambda = 5});
    const TrajectoryFit errors = lab::fits_of(run, {.lambda = 0});
    result.tables.push_back(layer_table(
        join("`", name, "`: lambda = 5, relative MSE at lambda = 0; validation loss ", lab::rounded(run.val)), fits,
        errors, type_of));
    const Spread share = spread_of(values_of(fits, type_of, "", share_of_l0));
    result.findings.push_back({join("`", name, "`: share of L0 in L0 + L1 |g|*"), "L0 near 0 in all layers",
                               text_of(share), "below 0.05 in nine of ten layers", lab::verdict(share.high < 0.05)});
    const double hidden = group_l1(fits, "hidden"), embedding = group_l1(fits, "embedding");
    result.findings.push_back(lab::compare(join("`", name, "`: L1 of the blocks over that of the embedding"), 70 / 1.3,
                                           hidden / embedding, 0.25));
    lab::Finding radii{join("`", name, "`: predicted radii 1 / L1, blocks and embedding"), "0.014 and 0.77",
                       join(lab::rounded(1 / hidden, 3), " and ", lab::rounded(1 / embedding, 3)), "both within 25 %"};
    radii.verdict = lab::verdict(std::abs(1 / hidden / 0.014 - 1) < 0.25 && std::abs(1 / embedding / 0.77 - 1) < 0.25);
    result.findings.push_back(std::move(radii));
    for (lab::Figure& figure : layer_figures(name, read_trajectory(run.folder), fits)) {
      result.figures.push_back(std::move(figure));
    }
  }
  return result;
}

}  // namespace gluon::experiments
