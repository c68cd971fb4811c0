#include "gluon/smoothness/trajectory_csv.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gluon/core/check.h"
#include "gluon/core/csv.h"
#include "gluon/core/spec.h"

namespace gluon {
namespace {

namespace fs = std::filesystem;

enum Column : std::size_t { kStep, kLayer, kGroup, kNorm, kDualMethod, kEstimator, kNumbers };

constexpr std::array<std::string_view, kNumbers + kSampleValues.size()> kColumns = {
    "step",         "layer",      "group",    "norm",     "dual_method", "estimator", "gradient_change",
    "displacement", "smoothness", "gradient", "momentum", "alignment",   "radius"};

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
    const auto& layers = trajectory_.layers;
    const std::size_t likely = current_ + 1 < layers.size() ? current_ + 1 : 0;
    if (likely < layers.size() && layers[likely].layer == name) {
      current_ = likely;
    } else {
      find(name);
    }
    LayerTrajectory& found = trajectory_.layers[current_];
    check_unchanged(found.group, kGroup);
    check_unchanged(found.norm, kNorm);
    check_unchanged(found.dual_method, kDualMethod);
    return found;
  }

  void find(std::string_view name) {
    GLUON_CHECK(!name.empty(), csv_.where(), "layer must be a name, got an empty cell");
    const auto [entry, added] = index_.try_emplace(std::string(name), trajectory_.layers.size());
    current_ = entry->second;
    if (added) {
      trajectory_.layers.push_back({.layer = std::string(name),
                                    .group = std::string(cell(kGroup)),
                                    .norm = std::string(cell(kNorm)),
                                    .dual_method = std::string(cell(kDualMethod))});
    }
  }

  void check_unchanged(const std::string& before, std::size_t column) const {
    GLUON_CHECK(cell(column) == before, csv_.where(), "layer '", cell(kLayer), "' changes its ", kColumns[column],
                " from '", before, "' to '", cell(column), "'");
  }

  CsvReader csv_;
  std::vector<std::size_t> position_;  // of kColumns in the file
  std::string estimator_;
  std::unordered_map<std::string, std::size_t> index_;
  std::size_t current_ = 0;
  Trajectory trajectory_;
};

// Rejects rows that were measured differently from `layers`: a file that mixes them could not be read.
class SameMeasurement {
 public:
  SameMeasurement(const std::string& path, const Trajectory& layers)
      : path_(path), estimator_(estimator_name(layers.estimator)) {
    for (const LayerTrajectory& layer : layers.layers) layers_.emplace(layer.layer, &layer);
  }

  void check(const CsvReader& row) const {
    GLUON_CHECK(row.text(kEstimator) == estimator_, "smoothness: ", path_, " holds samples of the estimator '",
                row.text(kEstimator), "', this run uses '", estimator_, "'", kAdvice);
    const auto layer = layers_.find(row.text(kLayer));
    if (layer == layers_.end()) return;
    const LayerTrajectory& now = *layer->second;
    const auto same = [&](std::size_t column, const std::string& value) {
      GLUON_CHECK(row.text(column) == value, "smoothness: ", path_, " has layer '", now.layer, "' with ",
                  kColumns[column], " '", row.text(column), "', this run uses '", value, "'", kAdvice);
    };
    same(kNorm, now.norm);
    same(kDualMethod, now.dual_method);
    same(kGroup, now.group);
  }

 private:
  static constexpr std::string_view kAdvice = "; measure as before or move the file away";

  const std::string& path_;
  std::string_view estimator_;
  std::unordered_map<std::string_view, const LayerTrajectory*> layers_;
};

}  // namespace

bool is_trajectory_csv_header(std::string_view line) {
  CsvCells cells;
  if (!cells.split(line) || cells.size() < 2) return false;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (std::find(kColumns.begin(), kColumns.end(), cells[i]) != kColumns.end()) return true;
  }
  return false;
}

Trajectory read_trajectory_csv(const fs::path& path) {
  Trajectory trajectory = TrajectoryReader(path).read();
  GLUON_CHECK(!trajectory.layers.empty(), "smoothness: ", path.string(), " holds no samples");
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
  const std::string path = path_.string();
  CsvReader csv("smoothness", path_);
  std::uintmax_t kept = csv.bytes();
  const std::string columns = csv_row(csv.columns());
  // A run may have been killed while it wrote the header.
  GLUON_CHECK(kept == 0 ? header().starts_with(columns) : header() == columns, "smoothness: ", path,
              " has other columns than ", header());
  const SameMeasurement same(path, layers);
  while (csv.next()) {
    const int64_t step = csv.integer(kStep);
    if (keep_through && step > *keep_through) break;
    same.check(csv);
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
