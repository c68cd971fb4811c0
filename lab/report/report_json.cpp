#include "lab/report/report_json.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

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

template <typename Rows, typename Get> Json column(const Rows& rows, const std::vector<std::size_t>& kept, Get get) {
  Json values = Json::array();
  for (const std::size_t i : kept) values.push_back(get(rows[i]));
  return values;
}

// One curve: the steps, tokens and seconds of its points, and their values.
Json curve(const std::vector<LogRow>& rows, const std::vector<double>& values, std::size_t limit) {
  const std::vector<std::size_t> kept = thin(values, limit);
  return {{"step", column(rows, kept, [](const LogRow& row) { return row.step; })},
          {"tokens", column(rows, kept, [](const LogRow& row) { return row.tokens; })},
          {"seconds", column(rows, kept, [](const LogRow& row) { return short_number(row.seconds); })},
          {"value", column(values, kept, short_number)}};
}

// One curve of a history, which has no tokens and seconds.
Json history_curve(const GroupHistory& history, const std::vector<double>& values, std::size_t limit) {
  const std::vector<std::size_t> kept = thin(values, limit);
  return {{"step", column(history.steps, kept, [](int64_t step) { return step; })},
          {"value", column(values, kept, short_number)}};
}

Json histories_json(const std::vector<GroupHistory>& histories, const ReportLimits& limits) {
  Json json = Json::array();
  for (const GroupHistory& history : histories) {
    json.push_back({{"group", history.group},
                    {"alignment", history_curve(history, history.alignment, limits.log_points)},
                    {"used", history_curve(history, history.used, limits.log_points)},
                    {"predicted", history_curve(history, history.predicted, limits.log_points)}});
  }
  return json;
}

Json log_json(const std::vector<LogRow>& log, const ReportLimits& limits) {
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
  if (!log.empty()) {
    for (std::size_t i = 0; i < log.front().radii.size(); ++i) {
      std::vector<double> values;
      for (const LogRow& row : log) values.push_back(row.radii[i].second);
      radii[log.front().radii[i].first] = curve(log, values, limits.log_points);
    }
  }
  return {{"loss", curve(log, loss, limits.log_points)},
          {"val", curve(evaluated, val, limits.log_points)},
          {"optimizer", curve(log, optimizer, limits.log_points)},
          {"radii", radii}};
}

Json layer_json(const ReportLayer& layer, const ReportLimits& limits) {
  std::vector<double> smoothness;
  for (const Sample& sample : layer.samples) smoothness.push_back(sample.smoothness);
  const std::vector<std::size_t> kept = thin(smoothness, limits.layer_samples);
  const auto values = [&](double Sample::*member) {
    return column(layer.samples, kept, [&](const Sample& sample) { return short_number(sample.*member); });
  };
  Json json = {{"name", layer.name},
               {"group", layer.group},
               {"norm", layer.norm},
               {"dualMethod", layer.dual_method},
               {"block", layer.place.block},
               {"type", layer.place.type},
               {"fit", nullptr},
               {"unfitted", layer.unfitted},
               {"unmoved", layer.unmoved},
               {"step", column(layer.samples, kept, [](const Sample& sample) { return sample.step; })},
               {"smoothness", values(&Sample::smoothness)},
               {"gradient", values(&Sample::gradient)}};
  if (layer.fit) {
    json["fit"] = {{"L0", layer.fit->l0},
                   {"L1", layer.fit->l1},
                   {"mseRel", layer.fit->mse_rel},
                   {"violations", layer.fit->violations},
                   {"samples", layer.fit->samples}};
  }
  return json;
}

Json radii_json(const std::vector<GroupRadius>& radii) {
  Json json = Json::array();
  for (const GroupRadius& radius : radii) {
    json.push_back({{"group", radius.group},
                    {"layers", radius.layers},
                    {"L0", radius.l0},
                    {"L1", radius.l1},
                    {"gradient", radius.gradient},
                    {"predicted", radius.predicted},
                    {"used", radius.used}});
  }
  return json;
}

Json run_json(const ReportRun& run, const ReportLimits& limits) {
  Json layers = Json::array();
  for (const ReportLayer& layer : run.layers) layers.push_back(layer_json(layer, limits));
  return {{"name", run.name},
          {"path", run.path.string()},
          {"config", run.config},
          {"facts", run.facts.empty() ? Json(nullptr) : Json::parse(run.facts)},
          {"estimator", estimator_name(run.estimator)},
          {"notes", run.notes},
          {"log", log_json(run.log, limits)},
          {"layers", layers},
          {"radii", radii_json(run.radii)},
          {"histories", histories_json(run.histories, limits)}};
}

Json sweep_json(const ReportSweep& sweep) {
  Json cells = Json::array();
  for (const SweepCell& cell : sweep.table.cells) {
    cells.push_back({{"radii", cell.radii}, {"val", short_number(cell.val)}, {"loss", short_number(cell.loss)}});
  }
  return {{"name", sweep.name}, {"groups", sweep.table.groups}, {"cells", cells}};
}

}  // namespace

std::string report_json(const ReportData& data, const ReportLimits& limits) {
  Json runs = Json::array();
  for (const ReportRun& run : data.runs) runs.push_back(run_json(run, limits));
  Json sweeps = Json::array();
  for (const ReportSweep& sweep : data.sweeps) sweeps.push_back(sweep_json(sweep));
  const Json json = {
      {"version", kVersion},
      {"fit", {{"lambda", data.fit.lambda}, {"l0Zero", data.fit.l0_zero}, {"skipFirst", data.fit.skip_first}}},
      {"runs", runs},
      {"sweeps", sweeps}};
  // File names that are not UTF-8 get replacement characters.
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string escaped;
  escaped.reserve(text.size());
  for (const char c : text) {
    if (c == '<') {
      escaped += "\\u003c";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

}  // namespace gluon::lab
