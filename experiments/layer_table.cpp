#include "experiments/layer_table.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "gluon/core/check.h"
#include "gluon/core/printable.h"
#include "lab/report/report_data.h"

namespace gluon::experiments {
namespace {

// Linear between the two values next to the place.
double quantile(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const auto above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], place - static_cast<double>(below));
}

double l1_of(const LayerFit& layer) { return layer.fit.l1; }
double error_of(const LayerFit& layer) { return layer.fit.mse_rel; }

}  // namespace

Spread spread_of(std::vector<double> values) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  if (values.empty()) return {kNone, kNone, kNone};
  std::ranges::sort(values);
  return {quantile(values, 0.1), quantile(values, 0.5), quantile(values, 0.9)};
}

std::string text_of(const Spread& spread) {
  const auto three = [](double value) { return lab::rounded(value, 3); };
  return join(three(spread.median), " (", three(spread.low), " .. ", three(spread.high), ")");
}

std::string type_of(const LayerFit& layer) { return lab::place_of(layer.layer).type; }

std::vector<double> values_of(const TrajectoryFit& fits, const Kind& kind_of, const std::string& kind,
                              const std::function<double(const LayerFit&)>& value) {
  std::vector<double> values;
  for (const LayerFit& layer : fits.layers) {
    if (kind.empty() || kind_of(layer) == kind) values.push_back(value(layer));
  }
  return values;
}

double share_of_l0(const LayerFit& layer) {
  const double line = layer.fit.l0 + layer.fit.l1 * layer.gradient;
  return line > 0 ? layer.fit.l0 / line : 0;
}

lab::Table layer_table(const std::string& title, const TrajectoryFit& fits, const TrajectoryFit& errors,
                       const Kind& kind_of) {
  std::vector<std::string> kinds;
  for (const LayerFit& layer : fits.layers) {
    if (std::ranges::find(kinds, kind_of(layer)) == kinds.end()) kinds.push_back(kind_of(layer));
  }
  kinds.emplace_back();  // all
  lab::Table table{title, {"layers", "number", "L1", "1 / median L1", "share of L0", "relative MSE"}, {}};
  for (const std::string& kind : kinds) {
    const std::vector<double> l1 = values_of(fits, kind_of, kind, l1_of);
    const Spread spread = spread_of(l1);
    table.rows.push_back({kind.empty() ? "all" : printable(kind), std::to_string(l1.size()), text_of(spread),
                          lab::rounded(1 / spread.median, 3),
                          text_of(spread_of(values_of(fits, kind_of, kind, share_of_l0))),
                          text_of(spread_of(values_of(errors, kind_of, kind, error_of)))});
  }
  return table;
}

lab::Figure layer_figure(const std::string& name, const LayerTrajectory& samples, const Fit& fit) {
  lab::Figure figure{.name = name, .title = printable(samples.layer), .y_label = "Lhat"};
  figure.subtitles.push_back(join("L0 = ", lab::rounded(fit.l0), ", L1 = ", lab::rounded(fit.l1)));
  lab::FigureSeries measured{.label = "Lhat", .color = lab::run_color(0), .style = lab::LineStyle::kDots};
  lab::FigureSeries line{.label = "L0 + L1 |g|*", .color = lab::kFitColor};
  for (const Sample& sample : samples.samples) {
    for (lab::FigureSeries* series : {&measured, &line}) series->x.push_back(static_cast<double>(sample.step));
    measured.y.push_back(sample.smoothness);
    line.y.push_back(fit.l0 + fit.l1 * sample.gradient);
  }
  figure.series = {std::move(measured), std::move(line)};
  return figure;
}

std::vector<lab::Figure> layer_figures(const std::string& prefix, const Trajectory& samples,
                                       const TrajectoryFit& fits) {
  constexpr std::size_t kBlock = 6;  // layers of a transformer block, the query matrix first
  const std::size_t last = samples.layers.size() - 1;
  std::vector<lab::Figure> figures;
  for (const std::size_t number : {last / 2 / kBlock * kBlock, last}) {
    const LayerTrajectory& layer = samples.layers[number];
    const auto fit = std::ranges::find(fits.layers, layer.layer, &LayerFit::layer);
    if (fit != fits.layers.end()) figures.push_back(layer_figure(join(prefix, "-", layer.layer), layer, fit->fit));
  }
  return figures;
}

}  // namespace gluon::experiments
