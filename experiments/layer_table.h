// Constants of many layers as one row per kind of layer: medians, and the range that holds eight of ten.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gluon/fit/fit.h"
#include "lab/reproduce/study.h"

namespace gluon::experiments {

struct Spread {
  double low = 0;  // a tenth of the values is below, a tenth above `high`
  double median = 0;
  double high = 0;
};

/// NaN without values.
Spread spread_of(std::vector<double> values);

/// "68.5 (41.2 .. 93.1)"
std::string text_of(const Spread& spread);

/// What a layer is called in the table: its type in a block, or its group.
using Kind = std::function<std::string(const LayerFit&)>;

/// The kind of a language model's layer: "attn.c_q", "mlp.c_proj", "wte".
std::string type_of(const LayerFit& layer);

/// One value of each layer whose kind is `kind`; all layers for an empty one.
std::vector<double> values_of(const TrajectoryFit& fits, const Kind& kind_of, const std::string& kind,
                              const std::function<double(const LayerFit&)>& value);

/// The part of the line that does not grow with the gradient, at the layer's median: L0 / (L0 + L1 |g|*).
double share_of_l0(const LayerFit& layer);

/// Columns: layers, their number, L1, 1 / L1, L0's share, relative MSE. `errors` has the fits whose relative MSE is shown
/// (the paper takes it at lambda = 0).
lab::Table layer_table(const std::string& title, const TrajectoryFit& fits, const TrajectoryFit& errors,
                       const Kind& kind_of);

/// Lhat and its line over the steps, as the paper's figures.
lab::Figure layer_figure(const std::string& name, const LayerTrajectory& samples, const Fit& fit);

/// The figures of two layers of a run, PREFIX-LAYER: the one in the middle of the network, in a language model the query
/// matrix of its block, and the last one, which is the embedding or the head. A layer without a fit has none.
std::vector<lab::Figure> layer_figures(const std::string& prefix, const Trajectory& samples, const TrajectoryFit& fits);

}  // namespace gluon::experiments
