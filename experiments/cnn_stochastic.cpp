// The CNN on mini-batches with momentum 0.5 and constant radii: the paper's stochastic run. It fits L1 with L0 = 0; we also
// let the fit choose L0, and measure with both gradients from the same batch.

#include "experiments/layer_table.h"
#include "experiments/studies.h"
#include "gluon/core/check.h"
#include "gluon/smoothness/trajectory.h"

namespace gluon::experiments {

lab::StudyResult cnn_stochastic(lab::Workbench& bench) {
  lab::StudyResult result;
  lab::TrainConfig config = bench.images();
  config.train_images = bench.pick(2000, 0);
  config.test_images = bench.pick(400, 0);
  config.batch = bench.pick(200, 2000);
  config.steps = bench.pick(50, 200);
  config.smoothness_every = bench.pick(2, 4);
  result.notes.push_back(join("The paper: 50 000 images in batches of 2000. Here: ", bench.pick(2000, 50000),
                              " images in batches of ", config.batch, ", ", config.steps, " steps, one seed."));
  const auto group_of = [](const LayerFit& layer) { return layer.group; };
  for (const Estimator mode : {Estimator::kConsecutive, Estimator::kSameBatch}) {
    const std::string name(estimator_name(mode));
    config.smoothness_mode = name;
    const lab::RunResult run = bench.train("cnn-" + name, config);
    const TrajectoryFit fits = lab::fits_of(run, {.lambda = 5, .l0_zero = true});
    const TrajectoryFit free = lab::fits_of(run, {.lambda = 5});
    const Spread share = spread_of(values_of(free, group_of, "", share_of_l0));
    result.findings.push_back({join("`", name, "`: share of L0 where the fit may choose it"),
                               "\"roughly adheres\" with L0 = 0", text_of(share), "below 0.05 in nine of ten layers",
                               lab::verdict(share.high < 0.05)});
    for (lab::Figure& figure : layer_figures(name, read_trajectory(run.folder), fits)) {
      result.figures.push_back(std::move(figure));
    }
    result.tables.push_back(layer_table(join("`", name, "`: lambda = 5, L0 = 0"), fits, fits, group_of));
  }
  return result;
}

}  // namespace gluon::experiments
