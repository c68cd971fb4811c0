#include "experiments/language.h"

#include "experiments/layer_table.h"
#include "gluon/core/check.h"

namespace gluon::experiments {

lab::TrainConfig measured(lab::Workbench& bench, Estimator mode) {
  lab::TrainConfig config = bench.language();
  config.smoothness_every = bench.pick(10, 50);
  config.smoothness_start = config.smoothness_every;  // as the authors: not from the zero-initialised projections
  config.smoothness_mode = estimator_name(mode);
  return config;
}

lab::TrainConfig adamw_baseline(lab::Workbench& bench) {
  lab::TrainConfig config = bench.language();
  config.preset = "adamw";
  config.weight_decay = 0;
  return config;
}

double group_l1(const TrajectoryFit& fits, const std::string& group) {
  return spread_of(values_of(
                       fits, [](const LayerFit& layer) { return layer.group; }, group,
                       [](const LayerFit& layer) { return layer.fit.l1; }))
      .median;
}

std::string scale_note(const lab::Workbench& bench, const lab::TrainConfig& config) {
  const std::string here = config.data.empty()
                               ? "Gluon's own sources as bytes"
                               : bench.pick("bytes of an OpenWebText sample", "GPT-2 tokens of an English Wikipedia");
  const std::string size = config.layers == 0 && config.width == 0
                               ? config.model
                               : join(config.model, " with ", config.layers, " layers of width ", config.width);
  return join("The paper: NanoGPT-124M, 5000 steps of 512 x 1024 FineWeb tokens. Here: ", size, ", ", config.steps,
              " steps of ", config.batch * config.accumulate, " x ", bench.pick(128, 1024), ", ", here, ", one seed.");
}

}  // namespace gluon::experiments
