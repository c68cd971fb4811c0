#include "lab/report/report_json.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "gluon/core/check.h"
#include "gluon/core/json.h"
#include "gluon/version.h"
#include "lab/report/thin.h"

namespace gluon::lab {
namespace {

using Json = nlohmann::ordered_json;

// Seven digits are more than a chart shows and halve the size.
Json short_number(double value) {
  if (!std::isfinite(value)) return nullptr;
  char text[32];
  std::snprintf(text, sizeof text, "%.7g", value);
  return std::strtod(text, nullptr);
}

template <typename Items, typename To> Json list(const Items& items, To to) {
  Json values = Json::array();
  for (const auto& item : items) values.push_back(to(item));
  return values;
}

// The column of the rows that are kept.
template <typename Rows, typename Get> Json column(const Rows& rows, const std::vector<std::size_t>& kept, Get get) {
  return list(kept, [&](std::size_t i) -> Json { return get(rows[i]); });
}

// One curve: the steps of its points and their values.
Json curve(const std::vector<int64_t>& steps, const std::vector<double>& values, std::size_t limit) {
  const std::vector<std::size_t> kept = thin(values, limit);
  return {{"step", column(steps, kept, std::identity())}, {"value", column(values, kept, short_number)}};
}

// The same for a log, which also knows tokens and seconds.
Json curve(const std::vector<LogRow>& rows, const std::vector<double>& values, std::size_t limit) {
  const std::vector<std::size_t> kept = thin(values, limit);
  return {{"step", column(rows, kept, [](const LogRow& row) { return row.step; })},
          {"tokens", column(rows, kept, [](const LogRow& row) { return row.tokens; })},
          {"seconds", column(rows, kept, [](const LogRow& row) { return short_number(row.seconds); })},
          {"value", column(values, kept, short_number)}};
}

// Points of each curve of a run: the losses have three times as many as the others, as far as the limits allow.
struct CurvePoints {
  std::size_t loss, other;
};

CurvePoints points_of(const ReportRun& run, std::size_t points, const ReportLimits& limits) {
  constexpr std::size_t kLossWeight = 3, kLeast = 32;
  const std::size_t others = 1 + (run.log.empty() ? 0 : run.log.front().radii.size()) + 3 * run.histories.size();
  const std::size_t each = points / (2 * kLossWeight + others);
  return {std::clamp(kLossWeight * each, std::min(kLeast, limits.log_points), limits.log_points),
          std::clamp(each, std::min(kLeast, limits.log_points), limits.log_points)};
}

Json log_json(const std::vector<LogRow>& log, const CurvePoints& points) {
  std::vector<LogRow> evaluated;
  std::vector<double> val, loss, optimizer;
  for (const LogRow& row : log) {
    loss.push_back(row.loss);
    optimizer.push_back(row.optimizer.value_or(Sample::kMissing));
    if (!row.val) continue;
    evaluated.push_back(row);
    val.push_back(*row.val);
  }
  Json radii = Json::object();
  for (std::size_t i = 0; !log.empty() && i < log.front().radii.size(); ++i) {
    std::vector<double> values;
    for (const LogRow& row : log) values.push_back(row.radii[i].second);
    radii[log.front().radii[i].first] = curve(log, values, points.other);
  }
  return {{"loss", curve(log, loss, points.loss)},
          {"val", curve(evaluated, val, points.loss)},
          {"optimizer", curve(log, optimizer, points.other)},
          {"radii", radii}};
}

Json fit_json(const Fit& fit) {
  return {{"L0", fit.l0},           {"L1", fit.l1},
          {"mseRel", fit.mse_rel},  {"violations", fit.violations},
          {"samples", fit.samples}, {"leftOut", fit.left_out},
          {"doubt", fit.doubt}};
}

Json layer_json(const ReportLayer& layer, std::size_t limit) {
  std::vector<double> smoothness;
  for (const Sample& sample : layer.samples) smoothness.push_back(sample.smoothness);
  const std::vector<std::size_t> kept = thin(smoothness, limit);
  return {
      {"name", layer.name},
      {"group", layer.group},
      {"norm", layer.norm},
      {"dualMethod", layer.dual_method},
      {"block", layer.place.block},
      {"type", layer.place.type},
      {"fit", layer.fit ? fit_json(*layer.fit) : Json(nullptr)},
      {"unfitted", layer.unfitted},
      {"unmoved", layer.unmoved},
      {"step", column(layer.samples, kept, [](const Sample& sample) { return sample.step; })},
      {"smoothness", column(smoothness, kept, short_number)},
      {"gradient", column(layer.samples, kept, [](const Sample& sample) { return short_number(sample.gradient); })}};
}

Json radius_json(const GroupRadius& radius) {
  return {{"group", radius.group}, {"layers", radius.layers},     {"L0", radius.l0},
          {"L1", radius.l1},       {"gradient", radius.gradient}, {"predicted", radius.predicted},
          {"used", radius.used},   {"doubt", radius.doubt}};
}

Json status_json(const RunStatus& status) {
  return {{"state", run_state_name(status.state)},
          {"step", status.step},
          {"steps", status.steps ? Json(*status.steps) : Json(nullptr)},
          {"error", status.error},
          {"secondsLeft", status.seconds_left ? short_number(*status.seconds_left) : Json(nullptr)}};
}

Json run_of(const ReportRun& run, std::size_t curve_points, const ReportLimits& limits) {
  constexpr std::size_t kLeastSamples = 16;
  const CurvePoints points = points_of(run, curve_points, limits);
  const std::size_t samples = std::clamp(limits.run_points / std::max<std::size_t>(run.layers.size(), 1),
                                         std::min(kLeastSamples, limits.layer_samples), limits.layer_samples);
  const auto history_json = [&](const GroupHistory& history) -> Json {
    return {{"group", history.group},
            {"alignment", curve(history.steps, history.alignment, points.other)},
            {"used", curve(history.steps, history.used, points.other)},
            {"predicted", curve(history.steps, history.predicted, points.other)}};
  };
  return {{"name", run.name},
          {"path", run.path.string()},
          {"facts", run.facts.empty() ? Json(nullptr) : Json(parse_json(run.facts, "facts.json"))},
          {"status", status_json(run.status)},
          {"settings", list(run.settings,
                            [](const auto& entry) {
                              return Json::array({entry.first, entry.second});
                            })},
          {"estimator", estimator_name(run.estimator)},
          {"notes", run.notes},
          {"log", log_json(run.log, points)},
          {"layers", list(run.layers, [&](const ReportLayer& layer) { return layer_json(layer, samples); })},
          {"radii", list(run.radii, radius_json)},
          {"histories", list(run.histories, history_json)}};
}

Json sweep_of(const ReportSweep& sweep, const ReportLimits& limits) {
  const std::size_t points = limits.sweep_points / std::max<std::size_t>(sweep.table.cells.size(), 1);
  Json cells = Json::array();
  for (std::size_t i = 0; i < sweep.table.cells.size(); ++i) {
    const SweepCell& cell = sweep.table.cells[i];
    const ReportRun* run = i < sweep.cells.size() && sweep.cells[i].run ? &*sweep.cells[i].run : nullptr;
    cells.push_back({{"radii", cell.radii},
                     {"val", short_number(cell.val)},
                     {"loss", short_number(cell.loss)},
                     {"failed", i < sweep.cells.size() ? sweep.cells[i].failed : std::string()},
                     {"run", run == nullptr ? Json(nullptr) : run_of(*run, points, limits)}});
  }
  const auto best = best_cell(sweep.table.cells);
  return {{"name", sweep.name},
          {"groups", sweep.table.groups},
          {"best", best ? Json(*best) : Json(nullptr)},
          {"cells", cells}};
}

// File names that are not UTF-8 get replacement characters.
std::string text_of(const Json& json) {
  std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  for (auto at = text.find('<'); at != std::string::npos; at = text.find('<', at)) text.replace(at, 1, "\\u003c");
  return text;
}

}  // namespace

ReportLimits ReportLimits::of(std::size_t runs, std::size_t sweeps) {
  ReportLimits limits;
  limits.run_points /= std::bit_ceil(std::max<std::size_t>(runs, 1));
  limits.sweep_points /= std::bit_ceil(std::max<std::size_t>(sweeps, 1));
  return limits;
}

std::string run_json(const ReportRun& run, const ReportLimits& limits) {
  return text_of(run_of(run, limits.run_points, limits));
}

std::string sweep_json(const ReportSweep& sweep, const ReportLimits& limits) {
  return text_of(sweep_of(sweep, limits));
}

std::string join_json(const FitOptions& fit, const std::vector<std::string>& skipped,
                      std::span<const std::string_view> runs, std::span<const std::string_view> sweeps) {
  const Json skip_first = fit.skip_first ? Json(*fit.skip_first) : Json(nullptr);
  std::string text = text_of({{"version", kVersion},
                              {"fit", {{"lambda", fit.lambda}, {"l0Zero", fit.l0_zero}, {"skipFirst", skip_first}}},
                              {"skipped", skipped}});
  text.pop_back();
  const auto add = [&](const char* name, std::span<const std::string_view> parts) {
    text += join(",\"", name, "\":[");
    for (std::size_t i = 0; i < parts.size(); ++i) text.append(i == 0 ? "" : ",").append(parts[i]);
    text += "]";
  };
  add("runs", runs);
  add("sweeps", sweeps);
  return text + "}";
}

std::string report_json(const ReportData& data, const ReportLimits& limits) {
  std::vector<std::string> runs, sweeps;
  for (const ReportRun& run : data.runs) runs.push_back(run_json(run, limits));
  for (const ReportSweep& sweep : data.sweeps) sweeps.push_back(sweep_json(sweep, limits));
  const std::vector<std::string_view> run_views(runs.begin(), runs.end()), sweep_views(sweeps.begin(), sweeps.end());
  return join_json(data.fit, data.skipped, run_views, sweep_views);
}

std::string report_json(const ReportData& data) {
  return report_json(data, ReportLimits::of(data.runs.size(), data.sweeps.size()));
}

}  // namespace gluon::lab
