#include "lab/report/figures.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>
#include <map>
#include <optional>

#include "gluon/core/atomic_file.h"
#include "gluon/core/check.h"
#include "lab/report/heatmap.h"
#include "lab/report/palette.h"

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

// As on the page: a run has a colour and a dash, its training loss is thin and pale.
Figure loss_figure(const ReportData& data) {
  Figure figure{.name = "loss", .title = "Loss", .y_label = "loss"};
  for (std::size_t i = 0; i < data.runs.size(); ++i) {
    const ReportRun& run = data.runs[i];
    FigureSeries training = series_of(run.name, run.log, [](const LogRow& row) {
      return std::isnan(row.loss) ? std::nullopt : std::optional(row.loss);
    });
    FigureSeries validation = series_of(run.name, run.log, &LogRow::val);
    training.kind = "training";
    validation.kind = "validation";
    training.style = LineStyle::kFaint;
    validation.style = LineStyle::kMarked;
    for (FigureSeries* series : {&training, &validation}) {
      series->color = run_color(i);
      series->dash = run_dash(i);
    }
    figure.series.push_back(std::move(training));
    figure.series.push_back(std::move(validation));
  }
  return figure;
}

Figure layer_figure(const ReportRun& run, const ReportLayer& layer, std::size_t index) {
  Figure figure{.name = join(run.name, "-layer-", layer.name), .title = layer.name, .y_label = "Lhat"};
  figure.series.push_back(series_of("Lhat", layer.samples, &Sample::smoothness));
  figure.series.back().style = LineStyle::kDots;
  figure.series.back().color = run_color(index);
  if (!layer.fit) return figure;
  const Fit& fit = *layer.fit;
  figure.subtitles.push_back(
      join("L0 = ", rounded(fit.l0), ", L1 = ", rounded(fit.l1), ", relative MSE ", rounded(fit.mse_rel)));
  if (fit.left_out > 0) {
    figure.subtitles.push_back(
        join(fit.left_out, fit.left_out == 1 ? " sample" : " samples", " left out at the start"));
  }
  if (!fit.doubt.empty()) figure.subtitles.push_back("doubtful: " + fit.doubt);
  figure.series.push_back(series_of("L0 + L1 |g|*", layer.samples,
                                    [&](const Sample& sample) { return fit.l0 + fit.l1 * sample.gradient; }));
  figure.series.back().color = kFitColor;
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
  for (Figure& figure : figures) {
    for (std::size_t i = 0; i < figure.series.size(); ++i) {
      figure.series[i].color = ramp_color(i, figure.series.size());
    }
  }
  return figures;
}

Figure radii_figure(const ReportRun& run) {
  Figure figure{.name = run.name + "-radii", .title = run.name + ": radii", .y_label = "radius", .log_y = true};
  for (std::size_t i = 0; !run.log.empty() && i < run.log.front().radii.size(); ++i) {
    const std::string& role = run.log.front().radii[i].first;
    figure.series.push_back(series_of(role, run.log, [i](const LogRow& row) { return row.radii[i].second; }));
    figure.series.back().color = group_color(role);
  }
  return figure;
}

Figure optimizer_figure(const ReportRun& run) {
  Figure figure{.name = run.name + "-optimizer",
                .title = run.name + ": the optimizer's share of a step's time",
                .y_label = "share",
                .series = {series_of("optimizer", run.log, &LogRow::optimizer)}};
  figure.series[0].color = group_color("optimizer");
  return figure;
}

// Adds one curve, unless none of its values is known.
void add_history(Figure& figure, const std::string& what, const GroupHistory& history,
                 const std::vector<double>& values) {
  if (std::none_of(values.begin(), values.end(), [](double value) { return std::isfinite(value); })) return;
  const std::string group = history.group.empty() ? "all" : history.group;
  figure.series.push_back({.label = group,
                           .kind = what,
                           .x = {history.steps.begin(), history.steps.end()},
                           .y = values,
                           .color = group_color(group)});
}

std::vector<Figure> history_figures(const ReportRun& run) {
  Figure alignment{.name = run.name + "-alignment", .title = run.name + ": alignment", .y_label = "alignment"};
  Figure radii{.name = run.name + "-predicted-radii",
               .title = run.name + ": predicted and used radii",
               .y_label = "radius",
               .log_y = true};
  for (const GroupHistory& history : run.histories) {
    add_history(alignment, "", history, history.alignment);
    add_history(radii, "used", history, history.used);
    const std::size_t before = radii.series.size();
    add_history(radii, "predicted", history, history.predicted);
    if (radii.series.size() > before) radii.series.back().style = LineStyle::kDashed;
  }
  return {std::move(alignment), std::move(radii)};
}

// As names of files: they may differ only in characters that file_name() replaces.
template <typename Items, typename Name> std::vector<std::string> unique_names(const Items& items, Name name) {
  std::map<std::string, int> uses;
  std::vector<std::string> names;
  for (const auto& item : items) {
    names.push_back(file_name(std::invoke(name, item)));
    if (const int used = uses[names.back()]++; used > 0) names.back() += join("-", used + 1);
  }
  return names;
}

}  // namespace

std::vector<Figure> report_figures(const ReportData& data) {
  std::vector<Figure> figures{loss_figure(data)};
  for (std::size_t i = 0; i < data.runs.size(); ++i) {
    const ReportRun& run = data.runs[i];
    for (const ReportLayer& layer : run.layers) figures.push_back(layer_figure(run, layer, i));
    for (Figure& figure : block_figures(run)) figures.push_back(std::move(figure));
    figures.push_back(radii_figure(run));
    figures.push_back(optimizer_figure(run));
    for (Figure& figure : history_figures(run)) figures.push_back(std::move(figure));
  }
  for (Figure& figure : figures) {
    std::erase_if(figure.series, [](const FigureSeries& series) { return series.x.empty(); });
  }
  std::erase_if(figures, [](const Figure& figure) { return figure.series.empty(); });
  const std::vector<std::string> names = unique_names(figures, &Figure::name);
  for (std::size_t i = 0; i < figures.size(); ++i) figures[i].name = names[i];
  return figures;
}

std::size_t write_figures(const ReportData& data, const fs::path& folder, FigureWidth width) {
  OutputFolder output("--figures", folder);
  std::size_t written = 0;
  const auto write = [&](const std::string& name, const std::string& svg, const std::string& csv) {
    write_text_atomically(folder / (name + ".svg"), svg);
    write_text_atomically(folder / (name + ".csv"), csv);
    ++written;
  };
  for (const Figure& figure : report_figures(data)) write(figure.name, figure_svg(figure, width), figure_csv(figure));
  const std::vector<std::string> names = unique_names(data.sweeps, &ReportSweep::name);
  for (std::size_t i = 0; i < names.size(); ++i) {
    write("sweep-" + names[i], heatmap_svg(data.sweeps[i], width), heatmap_csv(data.sweeps[i]));
  }
  output.keep();
  return written;
}

OutputFolder::OutputFolder(const std::string& flag, fs::path path) : path_(std::move(path)) {
  GLUON_CHECK(!fs::exists(path_) || (fs::is_directory(path_) && fs::is_empty(path_)), "report: ", flag,
              " needs a new or empty folder, got ", path_.string());
  std::error_code error;
  fs::create_directories(path_, error);
  GLUON_CHECK(!error, "report: cannot create ", path_.string(), ": ", error.message());
}

OutputFolder::~OutputFolder() {
  if (kept_) return;
  // Not remove_all(): some LibTorch packages export a broken one of their own.
  std::error_code ignored;
  std::vector<fs::path> written;
  for (fs::recursive_directory_iterator entry(path_, ignored), end; entry != end; entry.increment(ignored)) {
    written.push_back(entry->path());
  }
  for (auto path = written.rbegin(); path != written.rend(); ++path) fs::remove(*path, ignored);
}

std::string file_name(const std::string& text) {
  std::string name;
  for (const unsigned char c : text)
    name += std::isalnum(c) || c == '.' || c == '-' || c == '_' ? static_cast<char>(c) : '_';
  return name;
}

}  // namespace gluon::lab
