#include "lab/report/figures.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>
#include <map>
#include <optional>

#include "gluon/core/atomic_file.h"
#include "gluon/core/check.h"
#include "gluon/core/csv.h"
#include "gluon/core/spec.h"

namespace gluon::lab {
namespace {

namespace fs = std::filesystem;

// A point per row, a sample or a line of the log, whose `value` is known.
template <typename Rows, typename Value>
FigureSeries series_of(const std::string& label, const Rows& rows, Value value) {
  FigureSeries series{.label = label};
  for (const auto& row : rows) {
    const std::optional<double> y = std::invoke(value, row);
    if (!y) continue;
    series.x.push_back(static_cast<double>(row.step));
    series.y.push_back(*y);
  }
  return series;
}

Figure loss_figure(const ReportData& data) {
  Figure figure{.name = "loss", .title = "Loss", .y_label = "loss"};
  for (const ReportRun& run : data.runs) {
    figure.series.push_back(series_of(run.name + ", training", run.log, [](const LogRow& row) {
      return std::isnan(row.loss) ? std::nullopt : std::optional(row.loss);
    }));
    figure.series.push_back(series_of(run.name + ", validation", run.log, &LogRow::val));
  }
  return figure;
}

Figure layer_figure(const ReportRun& run, const ReportLayer& layer) {
  Figure figure{.name = join(run.name, "-layer-", layer.name), .title = layer.name, .y_label = "Lhat"};
  figure.series.push_back(series_of("Lhat", layer.samples, &Sample::smoothness));
  figure.series.back().dots = true;
  if (!layer.fit) return figure;
  const Fit& fit = *layer.fit;
  figure.title += join(": L0 = ", rounded(fit.l0), ", L1 = ", rounded(fit.l1), ", relative MSE ", rounded(fit.mse_rel));
  figure.series.push_back(series_of("L0 + L1 |g|*", layer.samples,
                                    [&](const Sample& sample) { return fit.l0 + fit.l1 * sample.gradient; }));
  return figure;
}

std::vector<Figure> block_figures(const ReportRun& run) {
  std::vector<Figure> figures;
  for (const ReportLayer& layer : run.layers) {
    const auto& [block, type] = layer.place;
    if (block < 0) continue;
    const std::string name = join(run.name, "-blocks-", type);
    auto figure = std::find_if(figures.begin(), figures.end(), [&](const Figure& one) { return one.name == name; });
    if (figure == figures.end()) {
      figures.push_back({.name = name, .title = type + ", all blocks", .y_label = "Lhat", .log_y = true});
      figure = figures.end() - 1;
    }
    figure->series.push_back(series_of(join("B.", block), layer.samples, &Sample::smoothness));
  }
  return figures;
}

Figure radii_figure(const ReportRun& run) {
  Figure figure{.name = run.name + "-radii", .title = run.name + ": radii", .y_label = "radius", .log_y = true};
  for (std::size_t i = 0; !run.log.empty() && i < run.log.front().radii.size(); ++i) {
    figure.series.push_back(
        series_of(run.log.front().radii[i].first, run.log, [i](const LogRow& row) { return row.radii[i].second; }));
  }
  return figure;
}

Figure optimizer_figure(const ReportRun& run) {
  return {.name = run.name + "-optimizer",
          .title = run.name + ": the optimizer's share of a step's time",
          .y_label = "share",
          .series = {series_of("optimizer", run.log, &LogRow::optimizer)}};
}

// Adds one curve, unless none of its values is known.
void add_history(Figure& figure, const std::string& label, const GroupHistory& history,
                 const std::vector<double>& values) {
  if (std::none_of(values.begin(), values.end(), [](double value) { return std::isfinite(value); })) return;
  figure.series.push_back({.label = label, .x = {history.steps.begin(), history.steps.end()}, .y = values});
}

std::vector<Figure> history_figures(const ReportRun& run) {
  Figure alignment{.name = run.name + "-alignment", .title = run.name + ": alignment", .y_label = "alignment"};
  Figure radii{.name = run.name + "-predicted-radii",
               .title = run.name + ": predicted and used radii",
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
  std::vector<Figure> figures{loss_figure(data)};
  for (const ReportRun& run : data.runs) {
    for (const ReportLayer& layer : run.layers) figures.push_back(layer_figure(run, layer));
    for (Figure& figure : block_figures(run)) figures.push_back(std::move(figure));
    figures.push_back(radii_figure(run));
    figures.push_back(optimizer_figure(run));
    for (Figure& figure : history_figures(run)) figures.push_back(std::move(figure));
  }
  for (Figure& figure : figures) {
    std::erase_if(figure.series, [](const FigureSeries& series) { return series.x.empty(); });
  }
  std::erase_if(figures, [](const Figure& figure) { return figure.series.empty(); });
  // Names may differ only in characters that file_name() replaces.
  std::map<std::string, int> uses;
  for (Figure& figure : figures) {
    figure.name = file_name(figure.name);
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

void make_output_folder(const std::string& flag, const fs::path& folder) {
  GLUON_CHECK(!fs::exists(folder) || (fs::is_directory(folder) && fs::is_empty(folder)), "report: ", flag,
              " needs a new or empty folder, got ", folder.string());
  std::error_code error;
  fs::create_directories(folder, error);
  GLUON_CHECK(!error, "report: cannot create ", folder.string(), ": ", error.message());
}

std::string file_name(const std::string& text) {
  std::string name;
  for (const unsigned char c : text)
    name += std::isalnum(c) || c == '.' || c == '-' || c == '_' ? static_cast<char>(c) : '_';
  return name;
}

}  // namespace gluon::lab
