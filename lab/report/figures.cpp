#include "lab/report/figures.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "gluon/core/atomic_file.h"
#include "gluon/core/check.h"
#include "gluon/core/csv.h"
#include "gluon/core/spec.h"
#include "lab/report/output_folder.h"

namespace gluon::lab {
namespace {

namespace fs = std::filesystem;

Figure loss_figure(const ReportData& data) {
  Figure figure{.name = "loss", .title = "Loss", .x_label = "steps", .y_label = "loss"};
  for (const ReportRun& run : data.runs) {
    FigureSeries loss{.label = run.name + ", training"};
    FigureSeries val{.label = run.name + ", validation"};
    for (const LogRow& row : run.log) {
      const auto step = static_cast<double>(row.step);
      if (!std::isnan(row.loss)) {
        loss.x.push_back(step);
        loss.y.push_back(row.loss);
      }
      if (row.val) {
        val.x.push_back(step);
        val.y.push_back(*row.val);
      }
    }
    if (!loss.x.empty()) figure.series.push_back(std::move(loss));
    if (!val.x.empty()) figure.series.push_back(std::move(val));
  }
  return figure;
}

FigureSeries smoothness_of(const ReportLayer& layer, const std::string& label) {
  FigureSeries series{.label = label};
  for (const Sample& sample : layer.samples) {
    series.x.push_back(static_cast<double>(sample.step));
    series.y.push_back(sample.smoothness);
  }
  return series;
}

Figure layer_figure(const ReportRun& run, const ReportLayer& layer) {
  Figure figure{.name = file_name(join(run.name, "-layer-", layer.name)),
                .title = layer.name,
                .x_label = "steps",
                .y_label = "Lhat"};
  figure.series.push_back(smoothness_of(layer, "Lhat"));
  figure.series.back().dots = true;
  if (!layer.fit) return figure;
  const Fit& fit = *layer.fit;
  const auto rounded = [](double value) {
    std::ostringstream text;
    text.precision(4);
    text << value;
    return text.str();
  };
  figure.title += join(": L0 = ", rounded(fit.l0), ", L1 = ", rounded(fit.l1), ", relative MSE ", rounded(fit.mse_rel));
  FigureSeries line{.label = "L0 + L1 |g|*"};
  for (const Sample& sample : layer.samples) {
    line.x.push_back(static_cast<double>(sample.step));
    line.y.push_back(fit.l0 + fit.l1 * sample.gradient);
  }
  figure.series.push_back(std::move(line));
  return figure;
}

std::vector<Figure> block_figures(const ReportRun& run) {
  std::vector<std::string> order;
  std::map<std::string, Figure> by_type;
  for (const ReportLayer& layer : run.layers) {
    if (layer.place.block < 0) continue;
    const std::string& type = layer.place.type;
    if (by_type.count(type) == 0) {
      order.push_back(type);
      by_type[type] = {.name = file_name(join(run.name, "-blocks-", type)),
                       .title = type + ", all blocks",
                       .x_label = "steps",
                       .y_label = "Lhat",
                       .log_y = true};
    }
    by_type[type].series.push_back(smoothness_of(layer, join("B.", layer.place.block)));
  }
  std::vector<Figure> figures;
  for (const std::string& type : order) figures.push_back(std::move(by_type[type]));
  return figures;
}

Figure radii_figure(const ReportRun& run) {
  Figure figure{.name = file_name(run.name + "-radii"),
                .title = run.name + ": radii",
                .x_label = "steps",
                .y_label = "radius",
                .log_y = true};
  for (std::size_t i = 0; i < run.log.front().radii.size(); ++i) {
    FigureSeries series{.label = run.log.front().radii[i].first};
    for (const LogRow& row : run.log) {
      series.x.push_back(static_cast<double>(row.step));
      series.y.push_back(row.radii[i].second);
    }
    figure.series.push_back(std::move(series));
  }
  return figure;
}

Figure optimizer_figure(const ReportRun& run) {
  Figure figure{.name = file_name(run.name + "-optimizer"),
                .title = run.name + ": the optimizer's share of a step's time",
                .x_label = "steps",
                .y_label = "share"};
  FigureSeries series{.label = "optimizer"};
  for (const LogRow& row : run.log) {
    if (!row.optimizer) continue;
    series.x.push_back(static_cast<double>(row.step));
    series.y.push_back(*row.optimizer);
  }
  if (!series.x.empty()) figure.series.push_back(std::move(series));
  return figure;
}

// Adds one curve, unless none of its values is known.
void add_history(Figure& figure, const std::string& label, const GroupHistory& history,
                 const std::vector<double>& values) {
  FigureSeries series{.label = label, .x = {history.steps.begin(), history.steps.end()}, .y = values};
  if (std::any_of(values.begin(), values.end(), [](double value) { return std::isfinite(value); }))
    figure.series.push_back(std::move(series));
}

std::vector<Figure> history_figures(const ReportRun& run) {
  Figure alignment{.name = file_name(run.name + "-alignment"),
                   .title = run.name + ": alignment",
                   .x_label = "steps",
                   .y_label = "alignment"};
  Figure radii{.name = file_name(run.name + "-predicted-radii"),
               .title = run.name + ": predicted and used radii",
               .x_label = "steps",
               .y_label = "radius",
               .log_y = true};
  for (const GroupHistory& history : run.histories) {
    const std::string group = history.group.empty() ? "all" : history.group;
    add_history(alignment, group, history, history.alignment);
    add_history(radii, group + ", used", history, history.used);
    add_history(radii, group + ", predicted", history, history.predicted);
  }
  return {std::move(alignment), std::move(radii)};
}

std::string sweep_csv(const SweepTable& table) {
  std::vector<std::string> header = table.groups;
  header.push_back("val");
  std::string text = csv_row(header) + "\n";
  for (const SweepCell& cell : table.cells) {
    std::vector<std::string> row;
    for (const double radius : cell.radii) row.push_back(number_text(radius));
    row.push_back(std::isfinite(cell.val) ? number_text(cell.val) : "");
    text += csv_row(row) + "\n";
  }
  return text;
}

}  // namespace

std::vector<Figure> report_figures(const ReportData& data) {
  std::vector<Figure> figures;
  figures.push_back(loss_figure(data));
  for (const ReportRun& run : data.runs) {
    for (const ReportLayer& layer : run.layers) figures.push_back(layer_figure(run, layer));
    for (Figure& figure : block_figures(run)) figures.push_back(std::move(figure));
    if (!run.log.empty() && !run.log.front().radii.empty()) figures.push_back(radii_figure(run));
    figures.push_back(optimizer_figure(run));
    for (Figure& figure : history_figures(run)) figures.push_back(std::move(figure));
  }
  std::erase_if(figures, [](const Figure& figure) { return figure.series.empty(); });
  // Names may differ only in characters that file_name() replaces.
  std::map<std::string, int> uses;
  for (Figure& figure : figures) {
    if (const int used = uses[figure.name]++; used > 0) figure.name += join("-", used + 1);
  }
  return figures;
}

std::size_t write_figures(const ReportData& data, const fs::path& folder) {
  make_output_folder("--figures", folder);
  std::size_t written = 0;
  const auto write = [&](const std::string& name, const std::string& svg, const std::string& csv) {
    write_text_atomically(folder / (name + ".svg"), svg);
    write_text_atomically(folder / (name + ".csv"), csv);
    ++written;
  };
  for (const Figure& figure : report_figures(data)) write(figure.name, figure_svg(figure), figure_csv(figure));
  for (const ReportSweep& sweep : data.sweeps) {
    const std::string name = file_name("sweep-" + sweep.name);
    if (sweep.table.groups.size() == 2) {
      write(name, heatmap_svg(sweep.name + ": validation loss", sweep.table), sweep_csv(sweep.table));
    } else {
      write_text_atomically(folder / (name + ".csv"), sweep_csv(sweep.table));
    }
  }
  return written;
}

}  // namespace gluon::lab
