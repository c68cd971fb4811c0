// Does the best radius move with the width or the depth of the model? unScion's norms have width factors, so that it should
// not; AdamW's learning rate is known to.

#include <algorithm>
#include <array>
#include <cmath>

#include "experiments/language.h"
#include "experiments/studies.h"
#include "gluon/core/check.h"
#include "lab/report/report_data.h"

namespace gluon::experiments {
namespace {

constexpr double kEmbedding = 60;  // times the blocks' radius, as the paper's 1.08 / 0.018
constexpr std::array kRadii = {0.009, 0.018, 0.036, 0.072};
constexpr std::array kRates = {1e-3, 2e-3, 4e-3, 8e-3};

struct Size {
  int64_t layers;
  int64_t width;
};

constexpr std::array kSmallWidths = {Size{2, 32}, Size{2, 64}, Size{2, 128}};
constexpr std::array kSmallDepths = {Size{1, 64}, Size{2, 64}, Size{4, 64}};
constexpr std::array kWidths = {Size{6, 128}, Size{6, 256}, Size{6, 512}, Size{6, 1024}};
constexpr std::array kDepths = {Size{3, 512}, Size{6, 512}, Size{12, 512}};

struct Curve {
  std::string label;
  std::vector<lab::Workbench::Trial> trials;  // of the grid
};

// Of all runs with the preset, whatever their size.
lab::TrainConfig common_config(lab::Workbench& bench, const std::string& preset) {
  lab::TrainConfig config = preset == "adamw" ? adamw_baseline(bench) : bench.language();
  config.steps = bench.pick(100, 600);
  config.accumulate = 1;
  config.eval_every = config.steps;
  config.schedule = join("linear(", config.steps, ",", config.steps, ")");
  return config;
}

class Transfer {
 public:
  Transfer(lab::Workbench& bench, lab::StudyResult& result) : bench_(bench), result_(result) {}

  // Over these sizes, which differ in one dimension: the ratio of the largest to the smallest of the best values.
  double across(const std::string& preset, const std::string& dimension, std::span<const Size> sizes) {
    const bool adamw = preset == "adamw";
    const auto grid = std::span<const double>(adamw ? kRates : kRadii);
    lab::Figure figure{.name = join("transfer-", preset, "-", dimension),
                       .title = join(preset, " over ", dimension),
                       .x_label = adamw ? "learning rate" : "radius of the blocks",
                       .y_label = "validation loss",
                       .log_x = true,
                       .whole_x = false,
                       .series = {}};
    lab::Table table{figure.title, {dimension}, {}};
    for (const double value : grid) table.columns.push_back(join(value));
    table.columns.emplace_back("best");
    double smallest = 1e300, largest = 0;
    for (const Size& size : sizes) {
      const Curve curve = train(preset, size, grid, dimension);
      lab::FigureSeries series{.label = curve.label,
                               .color = lab::ramp_color(figure.series.size(), sizes.size()),
                               .style = lab::LineStyle::kMarked};
      table.rows.push_back({curve.label});
      for (const auto& trial : curve.trials) {
        series.x.push_back(trial.value);
        series.y.push_back(trial.result.val);
        table.rows.back().push_back(lab::rounded(trial.result.val, 5));
      }
      figure.series.push_back(std::move(series));
      const double best = lab::best_of(curve.trials).value;
      table.rows.back().push_back(join(best));
      smallest = std::min(smallest, best);
      largest = std::max(largest, best);
    }
    result_.figures.push_back(std::move(figure));
    result_.tables.push_back(std::move(table));
    return largest / smallest;
  }

 private:
  Curve train(const std::string& preset, const Size& size, std::span<const double> grid, const std::string& dimension) {
    lab::TrainConfig config = common_config(bench_, preset);
    config.layers = size.layers;
    config.width = size.width;
    config.heads = std::max<int64_t>(1, size.width / bench_.pick(32, 128));
    Curve curve{join(dimension, " ", dimension == "width" ? size.width : size.layers), {}};
    for (const double value : grid) {
      if (preset == "adamw") {
        config.lr = value;
      } else {
        config.radius = join("hidden=", value, ",embedding=", kEmbedding * value);
      }
      const std::string name = join("transfer-", preset, "-", size.layers, "x", size.width, "-", value);
      curve.trials.push_back({value, bench_.train(name, config)});
    }
    return curve;
  }

  lab::Workbench& bench_;
  lab::StudyResult& result_;
};

}  // namespace

lab::StudyResult radius_transfer(lab::Workbench& bench) {
  lab::StudyResult result;
  result.notes.push_back(scale_note(bench, common_config(bench, "unscion")));
  result.notes.emplace_back("Depths and widths are those of the tables; radii and rates fall linearly to 0.");
  const std::span<const Size> widths = bench.small() ? std::span<const Size>(kSmallWidths) : kWidths;
  const std::span<const Size> depths = bench.small() ? std::span<const Size>(kSmallDepths) : kDepths;
  Transfer transfer(bench, result);
  for (const std::string preset : {"unscion", "adamw"}) {
    for (const std::string dimension : {"width", "depth"}) {
      const double ratio = transfer.across(preset, dimension, dimension == "width" ? widths : depths);
      result.findings.push_back({join(preset, ": largest over smallest best value, over ", dimension),
                                 preset == "unscion" ? "norms with width factors" : "not in the paper",
                                 lab::rounded(ratio), "1: the best does not move",
                                 preset == "unscion" ? lab::verdict(ratio == 1) : lab::Verdict::kCannotTell});
    }
  }
  return result;
}

}  // namespace gluon::experiments
