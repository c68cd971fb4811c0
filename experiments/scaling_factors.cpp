// unScion's radii around the paper's, t = 0.00036 rho: the heatmap of rho2 (blocks) and rho3 (embedding), and the curves
// of its rows.

#include <algorithm>
#include <array>
#include <cmath>

#include "experiments/language.h"
#include "experiments/studies.h"
#include "gluon/core/check.h"
#include "lab/train/run_directory.h"

namespace gluon::experiments {
namespace {

constexpr double kGamma = 0.00036;
constexpr std::array kRho2 = {25.0, 50.0, 100.0, 200.0};
constexpr std::array kRho3 = {750.0, 3000.0, 12000.0};
constexpr double kPaperRho2 = 50, kPaperRho3 = 3000;

}  // namespace

lab::StudyResult scaling_factors(lab::Workbench& bench) {
  lab::StudyResult result;
  lab::TrainConfig config = bench.language();
  if (!bench.small()) {  // a smaller model, as twelve runs of the large one would take two hours
    config.layers = 6;
    config.width = 384;
  }
  config.steps = bench.pick(150, 1150);
  config.eval_every = config.steps / 5;
  result.notes.push_back(scale_note(bench, config));
  lab::Figure curves{.name = "rho3", .title = "unScion at rho2 = 50", .y_label = "validation loss", .series = {}};
  lab::ReportSweep sweep{"rho2-rho3", {{"rho2", "rho3"}, {}}, {}};
  for (const double rho2 : kRho2) {
    for (const double rho3 : kRho3) {
      config.radius = join("hidden=", kGamma * rho2, ",embedding=", kGamma * rho3);
      const lab::RunResult run = bench.train(join("rho-", rho2, "-", rho3), config);
      sweep.table.cells.push_back({{rho2, rho3}, run.val, run.loss, run.seconds});
      if (rho2 != kPaperRho2) continue;
      lab::FigureSeries series{.label = join("rho3 = ", rho3), .color = lab::run_color(curves.series.size())};
      for (const lab::LogRow& row : lab::RunDirectory::open(run.folder).log()) {
        if (!row.val) continue;
        series.x.push_back(static_cast<double>(row.step));
        series.y.push_back(*row.val);
      }
      curves.series.push_back(std::move(series));
    }
  }
  const auto& cells = sweep.table.cells;
  const auto best = lab::best_cell(cells);
  GLUON_CHECK(best, "reproduce: all cells of the heatmap have diverged");
  const std::vector<double> radii = cells[*best].radii;
  const auto paper = std::ranges::find(cells, std::vector{kPaperRho2, kPaperRho3}, &lab::SweepCell::radii);
  result.findings.push_back({"best cell of rho2 and rho3", "50 and 3000", join(radii[0], " and ", radii[1]),
                             "the same cell", lab::verdict(radii == paper->radii)});
  result.findings.push_back({"loss at the paper's 50 and 3000 over that of the best cell", "1",
                             lab::rounded(paper->val / cells[*best].val), "at most 1.005",
                             lab::verdict(paper->val <= 1.005 * cells[*best].val)});
  lab::Table table{"validation loss", {"rho2 \\ rho3"}, {}};
  for (const double rho3 : kRho3) table.columns.push_back(join(rho3));
  for (std::size_t i = 0; i < kRho2.size(); ++i) {
    table.rows.push_back({join(kRho2[i])});
    for (std::size_t j = 0; j < kRho3.size(); ++j) {
      table.rows.back().push_back(lab::rounded(cells[i * kRho3.size() + j].val, 5));
    }
  }
  result.tables.push_back(std::move(table));
  result.figures.push_back(std::move(curves));
  result.heatmaps.push_back(std::move(sweep));
  return result;
}

}  // namespace gluon::experiments
