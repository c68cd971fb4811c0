#include "gluon/smoothness/trajectory.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <unordered_map>

#include "gluon/core/atomic_file.h"
#include "gluon/core/check.h"
#include "gluon/core/csv.h"
#include "gluon/core/spec.h"

namespace gluon {
namespace {

namespace fs = std::filesystem;

// ---- smoothness.csv ----

enum Column : std::size_t { kStep, kLayer, kGroup, kNorm, kDualMethod, kEstimator, kNumbers };

constexpr std::array<std::string_view, kNumbers + kSampleValues.size()> kColumns = {
    "step",         "layer",      "group",    "norm",     "dual_method", "estimator", "gradient_change",
    "displacement", "smoothness", "gradient", "momentum", "alignment",   "radius"};

// What must not change from one sample of a layer to the next.
constexpr std::array kNames = {std::pair(kGroup, &LayerTrajectory::group), std::pair(kNorm, &LayerTrajectory::norm),
                               std::pair(kDualMethod, &LayerTrajectory::dual_method)};

std::string header() { return csv_row(std::vector<std::string>(kColumns.begin(), kColumns.end())); }

class TrajectoryReader {
 public:
  explicit TrajectoryReader(const fs::path& path) : csv_("smoothness", path), position_(csv_.find(kColumns)) {}

  Trajectory read() {
    while (csv_.next()) {
      Sample sample;
      sample.step = csv_.integer(position_[kStep]);
      for (std::size_t i = 0; i < kSampleValues.size(); ++i) {
        if (const auto value = csv_.number_or_empty(position_[kNumbers + i])) sample.*kSampleValues[i] = *value;
      }
      read_estimator();
      layer().samples.push_back(sample);
    }
    return std::move(trajectory_);
  }

 private:
  std::string_view cell(std::size_t column) const { return csv_.text(position_[column]); }

  void read_estimator() {
    const std::string_view name = cell(kEstimator);
    if (name == estimator_) return;
    GLUON_CHECK(estimator_.empty(), csv_.where(), "estimator '", name, "' after '", estimator_,
                "'; one file holds one estimator");
    try {
      trajectory_.estimator = parse_estimator(name);
    } catch (const InputError& error) {
      throw InputError(join(csv_.where(), error.what()));
    }
    estimator_ = name;
  }

  // Every sampled step writes its layers in the same order, so the layer after the last one is tried first.
  LayerTrajectory& layer() {
    const std::string_view name = cell(kLayer);
    auto& layers = trajectory_.layers;
    current_ = current_ + 1 < layers.size() ? current_ + 1 : 0;
    if (layers.empty() || layers[current_].layer != name) {
      GLUON_CHECK(!name.empty(), csv_.where(), "layer must be a name, got an empty cell");
      const auto [entry, added] = index_.try_emplace(std::string(name), layers.size());
      current_ = entry->second;
      if (added) {
        layers.push_back({.layer = std::string(name)});
        for (const auto& [column, field] : kNames) layers.back().*field = cell(column);
      }
    }
    for (const auto& [column, field] : kNames) {
      GLUON_CHECK(cell(column) == layers[current_].*field, csv_.where(), "layer '", name, "' changes its ",
                  kColumns[column], " from '", layers[current_].*field, "' to '", cell(column), "'");
    }
    return layers[current_];
  }

  CsvReader csv_;
  std::vector<std::size_t> position_;  // of kColumns in the file
  std::string estimator_;
  std::unordered_map<std::string, std::size_t> index_;
  std::size_t current_ = 0;
  Trajectory trajectory_;
};

// Rejects a row that was measured differently from now: a file that mixes them could not be read.
void check_same(const CsvReader& row, const fs::path& path, Column column, std::string_view now) {
  GLUON_CHECK(row.text(column) == now, "smoothness: ", path.string(),
              column == kEstimator ? " holds samples of the " : join(" has layer '", row.text(kLayer), "' with "),
              kColumns[column], " '", row.text(column), "', this run uses '", now,
              "'; measure as before or move the file away");
}

// Whether `line` names at least one of the columns of smoothness.csv.
bool is_csv_header(std::string_view line) {
  CsvCells cells;
  if (!cells.split(line) || cells.size() < 2) return false;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (std::find(kColumns.begin(), kColumns.end(), cells[i]) != kColumns.end()) return true;
  }
  return false;
}

// ---- logs of the paper's authors ----

// Removes `text` from the front of `rest`.
bool skip(std::string_view& rest, std::string_view text) {
  if (!rest.starts_with(text)) return false;
  rest.remove_prefix(text.size());
  return true;
}

template <typename Number> bool take(std::string_view& rest, Number& value) {
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (error != std::errc()) return false;
  rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
  return true;
}

// The start of a sample: "step:K/N (i) L_estimated:", or with K, or with K.F for "K/N".
bool take_start(std::string_view& rest, int64_t& step, bool& epochs, int64_t& layer) {
  int64_t total = 0;
  if (!skip(rest, "step:") || !take(rest, step)) return false;
  if (skip(rest, "/") && !take(rest, total)) return false;
  if (skip(rest, ".")) {
    rest.remove_prefix(std::min(rest.find_first_not_of("0123456789"), rest.size()));
    epochs = true;
  }
  return skip(rest, " (") && take(rest, layer) && skip(rest, ") L_estimated:");
}

// x norm_grad: y
bool take_values(std::string_view& rest, Sample& sample) {
  return take(rest, sample.smoothness) && skip(rest, " norm_grad:") && take(rest, sample.gradient) &&
         rest.find_first_not_of(" \r") == std::string_view::npos;
}

Trajectory read_paper_log(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string origin = join("smoothness: ", path.string());
  Trajectory trajectory;
  std::map<int64_t, std::size_t> index;
  bool epochs = false;  // steps are fractions of an epoch
  std::string line;
  // A last line without a break may have been cut inside a number.
  for (int64_t number = 1; read_line(file, line, origin); ++number) {
    std::string_view rest = line;
    Sample sample;
    int64_t layer = 0;
    if (!take_start(rest, sample.step, epochs, layer)) {
      const bool sample_line = line.starts_with("step:") && line.find(" L_estimated:") != std::string::npos;
      GLUON_CHECK(!sample_line, origin, " line ", number, ": expected step:STEP (LAYER) L_estimated: ..., got '", line,
                  "'");
      continue;
    }
    GLUON_CHECK(take_values(rest, sample), origin, " line ", number,
                ": expected L_estimated: NUMBER norm_grad: NUMBER, got '", line, "'");
    const auto [entry, fresh] = index.try_emplace(layer, trajectory.layers.size());
    if (fresh) trajectory.layers.push_back({.layer = std::to_string(layer)});
    trajectory.layers[entry->second].samples.push_back(sample);
  }
  GLUON_CHECK(!file.bad(), "smoothness: cannot read ", path.string());
  if (!epochs) return trajectory;
  for (LayerTrajectory& layer : trajectory.layers) {
    int64_t step = 0;
    for (Sample& sample : layer.samples) sample.step = ++step;
  }
  return trajectory;
}

}  // namespace

Estimator parse_estimator(std::string_view name) {
  const auto found = std::find(kEstimatorNames.begin(), kEstimatorNames.end(), name);
  GLUON_CHECK(found != kEstimatorNames.end(), "estimator: unknown name '", name,
              "'; allowed are consecutive, full, same_batch, unknown");
  return static_cast<Estimator>(found - kEstimatorNames.begin());
}

Trajectory read_trajectory(const fs::path& path) {
  std::error_code error;
  const bool run = fs::is_directory(path, error);
  const fs::path file = run ? path / "smoothness.csv" : path;
  GLUON_CHECK(fs::exists(file, error), "smoothness: ", path.string(),
              run ? " holds no smoothness.csv; gluon train writes one with --smoothness-every N"
                  : " does not exist; expected a run directory, a smoothness.csv or a log of the paper's authors");
  check_regular(file, "smoothness");
  std::ifstream start(file, std::ios::binary);
  GLUON_CHECK(start, "smoothness: cannot read ", file.string());
  std::string line;
  (void)read_line(start, line, join("smoothness: ", file.string()));
  const bool csv = is_csv_header(line) || file.extension() == ".csv";
  Trajectory trajectory = csv ? TrajectoryReader(file).read() : read_paper_log(file);
  GLUON_CHECK(!trajectory.layers.empty(), "smoothness: ", file.string(), " holds no samples",
              csv ? "" : ", lines such as 'step:50/5001 (0) L_estimated: 2.04 norm_grad: 0.0258'");
  return trajectory;
}

TrajectoryCsvWriter::TrajectoryCsvWriter(fs::path path, const Trajectory& layers, std::optional<int64_t> keep_through)
    : path_(std::move(path)), estimator_(layers.estimator) {
  std::error_code error;
  const std::uintmax_t kept = fs::exists(path_, error) ? kept_bytes(layers, keep_through) : 0;
  if (kept > 0) fs::resize_file(path_, kept, error);
  GLUON_CHECK(!error, "smoothness: cannot write ", path_.string(), ": ", error.message());
  file_.open(path_, std::ios::binary | (kept > 0 ? std::ios::app : std::ios::trunc));
  GLUON_CHECK(file_, "smoothness: cannot write ", path_.string());
  if (kept == 0) rows_ = header() + "\n";
  flush();
}

// Rows are in the order of their steps, so the rows to keep are the front of the file.
std::uintmax_t TrajectoryCsvWriter::kept_bytes(const Trajectory& layers, std::optional<int64_t> keep_through) const {
  CsvReader csv("smoothness", path_);
  std::uintmax_t kept = csv.bytes();
  const std::string columns = csv_row(csv.columns());
  // A run may have been killed while it wrote the header.
  GLUON_CHECK(kept == 0 ? header().starts_with(columns) : header() == columns, "smoothness: ", path_.string(),
              " has other columns than ", header());
  std::unordered_map<std::string_view, const LayerTrajectory*> measured;
  for (const LayerTrajectory& layer : layers.layers) measured.emplace(layer.layer, &layer);
  while (csv.next()) {
    const int64_t step = csv.integer(kStep);
    if (keep_through && step > *keep_through) break;
    check_same(csv, path_, kEstimator, estimator_name(estimator_));
    if (const auto layer = measured.find(csv.text(kLayer)); layer != measured.end()) {
      for (const auto& [column, field] : kNames) check_same(csv, path_, column, layer->second->*field);
    }
    kept = csv.bytes();
  }
  return kept;
}

void TrajectoryCsvWriter::append(const LayerTrajectory& layer, const Sample& sample) {
  std::vector<std::string> cells = {std::to_string(sample.step), layer.layer, layer.group, layer.norm,
                                    layer.dual_method};
  for (const std::string& name : cells) {
    GLUON_CHECK(name.find_first_of("\r\n") == std::string::npos,
                "smoothness.csv: names must not contain line breaks, got '", name, "'");
  }
  cells.emplace_back(estimator_name(estimator_));
  for (const auto value : kSampleValues) {
    cells.push_back(std::isnan(sample.*value) ? "" : number_text(sample.*value));
  }
  rows_ += csv_row(cells) + "\n";
}

void TrajectoryCsvWriter::flush() {
  file_ << rows_;
  file_.flush();
  GLUON_CHECK(file_, "smoothness: cannot write ", path_.string());
  rows_.clear();
}

}  // namespace gluon
