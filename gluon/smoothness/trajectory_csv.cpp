#include "gluon/smoothness/trajectory_csv.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gluon/core/check.h"

namespace gluon {
namespace {

namespace fs = std::filesystem;

enum Column : std::size_t { kStep, kLayer, kGroup, kNorm, kDualMethod, kEstimator, kNumbers };

constexpr std::array<double Sample::*, 7> kValues = {
    &Sample::gradient_change, &Sample::displacement, &Sample::smoothness, &Sample::gradient,
    &Sample::momentum,        &Sample::alignment,    &Sample::radius};

constexpr std::array<std::string_view, kNumbers + kValues.size()> kColumns = {
    "step",         "layer",      "group",    "norm",     "dual_method", "estimator", "gradient_change",
    "displacement", "smoothness", "gradient", "momentum", "alignment",   "radius"};

std::string header() {
  std::string line;
  for (const std::string_view column : kColumns) (line += line.empty() ? "" : ",") += column;
  return line;
}

void append_field(std::string& row, std::string_view field) {
  GLUON_CHECK(field.find_first_of("\r\n") == std::string_view::npos,
              "smoothness.csv: names must not hold line breaks, got '", field, "'");
  row += ',';
  if (field.find_first_of(",\"") == std::string_view::npos) {
    row += field;
    return;
  }
  row += '"';
  for (const char c : field) row.append(c == '"' ? 2 : 1, c);
  row += '"';
}

template <typename Number>
void append_number(std::string& row, Number value) {
  char buffer[32];
  row.append(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
}

// The cells of one line after the other. Views into the line or, where quotes had to go, into `unquoted_`.
class Cells {
 public:
  // False on a quote that is not closed or stands inside a field.
  bool split(std::string_view line) {
    cells_.clear();
    unquoted_.clear();
    unquoted_.reserve(line.size());  // the views must not move
    for (std::size_t at = 0;; ++at) {
      if (at < line.size() && line[at] == '"') {
        if (!quoted(line, at)) return false;
      } else {
        const std::size_t end = std::min(line.find(',', at), line.size());
        cells_.push_back(line.substr(at, end - at));
        at = end;
      }
      if (at == line.size()) return true;
      if (line[at] != ',') return false;
    }
  }

  std::size_t size() const { return cells_.size(); }
  std::string_view operator[](std::size_t i) const { return cells_[i]; }

 private:
  bool quoted(std::string_view line, std::size_t& at) {
    const std::size_t start = unquoted_.size();
    for (++at;; ++at) {
      const std::size_t quote = line.find('"', at);
      if (quote == std::string_view::npos) return false;
      unquoted_ += line.substr(at, quote - at);
      at = quote + 1;
      if (at == line.size() || line[at] != '"') break;
      unquoted_ += '"';
    }
    cells_.push_back(std::string_view(unquoted_).substr(start));
    return true;
  }

  std::vector<std::string_view> cells_;
  std::string unquoted_;
};

// The next line without its break. A last one that has none may have been cut inside a number: it does not count.
bool next_line(std::istream& file, std::string& line, const std::string& path) {
  std::getline(file, line);
  GLUON_CHECK(!file.bad(), "smoothness: cannot read ", path);
  return file.good();
}

// Spreadsheets write both.
std::string_view without_mark(std::string_view line) {
  if (line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
  return line;
}

std::string_view without_return(std::string_view line) {
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

class Reader {
 public:
  explicit Reader(const fs::path& path) : path_(path.string()) {}

  Trajectory read() {
    std::vector<char> buffer(1 << 20);
    std::ifstream file;
    file.rdbuf()->pubsetbuf(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    file.open(path_, std::ios::binary);
    GLUON_CHECK(file, "smoothness: cannot read ", path_);
    std::string line;
    next_line(file, line, path_);
    read_header(without_return(without_mark(line)));
    while (next_line(file, line, path_)) {
      ++line_number_;
      const std::string_view row = without_return(line);
      if (row.empty()) continue;
      const bool whole = cells_.split(row) && cells_.size() == width_;
      GLUON_CHECK(whole, where(), "expected ", width_, " cells as in the header, got ", cells_.size());
      read_row();
    }
    GLUON_CHECK(!trajectory_.layers.empty(), "smoothness: ", path_, " holds no samples");
    return std::move(trajectory_);
  }

 private:
  std::string where() const { return join("smoothness: ", path_, " line ", line_number_, ": "); }

  void read_header(std::string_view line) {
    GLUON_CHECK(cells_.split(line), where(), "unbalanced quotes");
    width_ = cells_.size();
    std::string missing;
    for (std::size_t column = 0; column < kColumns.size(); ++column) {
      std::size_t found = 0;
      for (std::size_t i = 0; i < width_; ++i) {
        if (cells_[i] == kColumns[column]) position_[column] = i, ++found;
      }
      GLUON_CHECK(found <= 1, where(), "column ", kColumns[column], " stands there ", found, " times");
      if (found == 0) (missing += missing.empty() ? "" : ", ") += kColumns[column];
    }
    GLUON_CHECK(missing.empty(), "smoothness: ", path_, " has no column ", missing, "; needed are ",
                header());
  }

  std::string_view cell(std::size_t column) const { return cells_[position_[column]]; }

  void read_row() {
    Sample sample;
    sample.step = number<int64_t>(kStep, "a whole number");
    for (std::size_t i = 0; i < kValues.size(); ++i) {
      if (!cell(kNumbers + i).empty())
        sample.*kValues[i] = number<double>(kNumbers + i, "a number or nothing");
    }
    read_estimator();
    layer().samples.push_back(sample);
  }

  template <typename Number>
  Number number(std::size_t column, std::string_view kind) const {
    const std::string_view text = cell(column);
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    GLUON_CHECK(error == std::errc() && end == text.data() + text.size(), where(), kColumns[column],
                " must be ", kind, ", got '", text, "'");
    return value;
  }

  void read_estimator() {
    const std::string_view name = cell(kEstimator);
    if (name == estimator_) return;
    GLUON_CHECK(estimator_.empty(), where(), "estimator '", name, "' after '", estimator_,
                "'; one file holds one estimator");
    try {
      trajectory_.estimator = parse_estimator(name);
    } catch (const InputError& error) {
      throw InputError(join(where(), error.what()));
    }
    estimator_ = name;
  }

  // Rows come in rounds over the layers, so the one after the last is the likely one.
  LayerTrajectory& layer() {
    const std::string_view name = cell(kLayer);
    auto& layers = trajectory_.layers;
    if (!layers.empty()) {
      const std::size_t likely = current_ + 1 < layers.size() ? current_ + 1 : 0;
      if (layers[likely].layer == name) {
        current_ = likely;
      } else if (layers[current_].layer != name) {
        find(name);
      }
    } else {
      find(name);
    }
    LayerTrajectory& found = layers[current_];
    unchanged(found.group, kGroup);
    unchanged(found.norm, kNorm);
    unchanged(found.dual_method, kDualMethod);
    return found;
  }

  void find(std::string_view name) {
    GLUON_CHECK(!name.empty(), where(), "layer must be a name, got nothing");
    const auto [entry, fresh] = index_.try_emplace(std::string(name), trajectory_.layers.size());
    current_ = entry->second;
    if (fresh) {
      trajectory_.layers.push_back({std::string(name),
                                    std::string(cell(kGroup)),
                                    std::string(cell(kNorm)),
                                    std::string(cell(kDualMethod)),
                                    {}});
    }
  }

  void unchanged(const std::string& before, std::size_t column) const {
    GLUON_CHECK(cell(column) == before, where(), "layer '", cell(kLayer), "' changes its ", kColumns[column],
                " from '", before, "' to '", cell(column), "'");
  }

  std::string path_;
  int64_t line_number_ = 1;
  std::size_t width_ = 0;
  std::array<std::size_t, kColumns.size()> position_{};
  Cells cells_;
  std::string estimator_;
  std::unordered_map<std::string, std::size_t> index_;
  std::size_t current_ = 0;
  Trajectory trajectory_;
};

// Refuses rows that were measured in another way than `layers` are. Such rows would make the file unreadable.
class SameMeasurement {
 public:
  SameMeasurement(const std::string& path, const Trajectory& layers)
      : path_(path), estimator_(estimator_name(layers.estimator)) {
    for (const LayerTrajectory& layer : layers.layers) layers_.emplace(layer.layer, &layer);
  }

  void check(const Cells& row) const {
    GLUON_CHECK(row[kEstimator] == estimator_, "smoothness: ", path_, " holds samples of the estimator '",
                row[kEstimator], "', the new ones are '", estimator_, "'", kAdvice);
    const auto layer = layers_.find(row[kLayer]);
    if (layer == layers_.end()) return;
    const LayerTrajectory& now = *layer->second;
    const auto where = [&] { return join("smoothness: ", path_, ": layer '", now.layer, "' was "); };
    GLUON_CHECK(row[kNorm] == now.norm, where(), "measured in ", row[kNorm], ", this run measures in ",
                now.norm, kAdvice);
    GLUON_CHECK(row[kDualMethod] == now.dual_method, where(), "measured with the dual method ",
                row[kDualMethod], ", this run uses ", now.dual_method, kAdvice);
    GLUON_CHECK(row[kGroup] == now.group, where(), "in the group '", row[kGroup], "', this run has it in '",
                now.group, "'", kAdvice);
  }

 private:
  static constexpr std::string_view kAdvice = "; measure as before or move the file away";

  const std::string& path_;
  std::string_view estimator_;
  std::unordered_map<std::string_view, const LayerTrajectory*> layers_;
};

}  // namespace

bool is_trajectory_csv_header(const std::string& line) {
  Cells cells;
  if (!cells.split(without_mark(line)) || cells.size() < 2) return false;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (std::find(kColumns.begin(), kColumns.end(), cells[i]) != kColumns.end()) return true;
  }
  return false;
}

Trajectory read_trajectory_csv(const fs::path& path) { return Reader(path).read(); }

TrajectoryCsvWriter::TrajectoryCsvWriter(fs::path path, const Trajectory& layers,
                                         std::optional<int64_t> keep_through)
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

// Rows are in the order of their steps, so what stays is the front of the file.
std::uintmax_t TrajectoryCsvWriter::kept_bytes(const Trajectory& layers,
                                               std::optional<int64_t> keep_through) const {
  const std::string path = path_.string();
  std::ifstream file(path_, std::ios::binary);
  GLUON_CHECK(file, "smoothness: cannot read ", path);
  std::string line;
  const bool ended = next_line(file, line, path);
  // A run may have been killed while it wrote the header.
  GLUON_CHECK(ended ? line == header() : header().starts_with(line), "smoothness: ", path,
              " has other columns than ", header());
  if (!ended) return 0;
  const SameMeasurement same(path, layers);
  std::uintmax_t kept = line.size() + 1;
  Cells cells;
  while (next_line(file, line, path)) {
    int64_t step = 0;
    const bool whole = cells.split(line) && cells.size() == kColumns.size() &&
                       std::from_chars(line.data(), line.data() + line.size(), step).ec == std::errc();
    GLUON_CHECK(whole, "smoothness: ", path, " holds a bad row '", line, "'");
    if (keep_through && step > *keep_through) break;
    same.check(cells);
    kept += line.size() + 1;
  }
  return kept;
}

void TrajectoryCsvWriter::append(const LayerTrajectory& layer, const Sample& sample) {
  std::string row;
  append_number(row, sample.step);
  for (const std::string* field : {&layer.layer, &layer.group, &layer.norm, &layer.dual_method}) {
    append_field(row, *field);
  }
  append_field(row, estimator_name(estimator_));
  for (const auto value : kValues) {
    row += ',';
    if (!std::isnan(sample.*value)) append_number(row, sample.*value);
  }
  (rows_ += row) += '\n';
}

void TrajectoryCsvWriter::flush() {
  file_ << rows_;
  file_.flush();
  GLUON_CHECK(file_, "smoothness: cannot write ", path_.string());
  rows_.clear();
}

}  // namespace gluon
