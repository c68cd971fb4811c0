// The CNN with full gradients, no momentum and constant radii: L1 per group with L0 = 0. Then theorem 1's radii with the
// constants of each layer, which such a fit gives: convolutions and head move by their own.

#include <algorithm>

#include "experiments/layer_table.h"
#include "experiments/studies.h"
#include "gluon/core/check.h"
#include "gluon/smoothness/trajectory.h"

namespace gluon::experiments {
namespace {

std::string group_of(const LayerFit& layer) { return layer.group; }

}  // namespace

lab::StudyResult cnn_full_batch(lab::Workbench& bench) {
  lab::StudyResult result;
  lab::TrainConfig config = bench.images();
  config.full_batch = true;
  config.momentum = "none";
  config.label_smoothing = 0.2;
  config.train_images = bench.pick(400, 0);
  config.test_images = bench.pick(400, 0);
  config.batch = bench.pick(400, 2000);
  config.steps = bench.pick(40, 100);
  config.smoothness_every = 1;
  const int64_t images = bench.pick(400, 50000);
  result.notes.push_back(join("The paper: 50 000 images. Here: ", images, " images, ", config.steps,
                              " steps, radii 0.5 and 50 for the head, no augmentation, one seed."));
  const lab::RunResult run = bench.train("cnn-full-batch", config);
  const TrajectoryFit fits = lab::fits_of(run, {.lambda = 5, .l0_zero = true});
  const TrajectoryFit free = lab::fits_of(run, {.lambda = 5});
  const auto l1 = [&](const std::string& group) {
    return spread_of(values_of(fits, group_of, group, [](const LayerFit& layer) { return layer.fit.l1; })).median;
  };
  result.findings.push_back(lab::compare("L1 of the convolutions (L0 = 0), median", 3, l1("conv"), 0.5));
  result.findings.push_back(lab::compare("L1 of the biases (L0 = 0), median", 3, l1("vector"), 0.5));
  result.findings.push_back(lab::compare("L1 of the head (L0 = 0)", 0.03, l1("head"), 0.5));
  result.findings.push_back(
      lab::compare("L1 of the convolutions over that of the head", 100, l1("conv") / l1("head"), 0.5));
  const Spread share = spread_of(values_of(free, group_of, "", share_of_l0));
  result.findings.push_back({"share of L0 where the fit may choose it", "L0 = 0 is assumed", text_of(share),
                             "below 0.05 in nine of ten layers", lab::verdict(share.high < 0.05)});
  result.tables.push_back(layer_table("lambda = 5, L0 = 0", fits, fits, group_of));

  result.figures = layer_figures("full-batch", read_trajectory(run.folder), fits);

  // Theorem 1 with each layer's own constants, and with the largest for all.
  lab::TrainConfig theory = config;
  theory.smoothness_every = 0;
  theory.preset = "deterministic_gluon";
  for (const LayerFit& layer : fits.layers) {
    theory.radius += join(theory.radius.empty() ? "" : ",", layer.layer, "=smooth(0,", layer.fit.l1, ")");
  }
  const lab::RunResult own = bench.train("cnn-theorem1-layers", theory);
  theory.radius = join("L0=0,L1=", std::max({l1("conv"), l1("vector"), l1("head")}));
  const lab::RunResult shared = bench.train("cnn-theorem1-shared", theory);
  lab::Table losses{join("training loss after ", config.steps, " steps of full gradients"), {"radii", "loss"}, {}};
  losses.rows = {{"constant, 0.5 and 50 for the head", lab::rounded(run.loss, 5)},
                 {"theorem 1, L1 of each layer", lab::rounded(own.loss, 5)},
                 {"theorem 1, the largest of the groups' L1 for all layers", lab::rounded(shared.loss, 5)}};
  result.tables.push_back(std::move(losses));
  result.findings.push_back({"training loss with theorem 1's radii: L1 per layer against one L1 for all",
                             "layer-wise constants justify the head's much larger radius",
                             join(lab::rounded(own.loss), " and ", lab::rounded(shared.loss)), "the first is lower",
                             lab::verdict(own.loss < shared.loss)});
  return result;
}

}  // namespace gluon::experiments
