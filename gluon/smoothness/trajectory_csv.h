// smoothness.csv: the samples of a run, one row per layer and sample.
//
//   step,layer,group,norm,dual_method,estimator,gradient_change,displacement,smoothness,gradient,momentum,alignment,radius
//   50,h.0.attn.c_q.weight,hidden,"scaled(1,spectral)",exact,same_batch,0.031,0.018,1.72,0.52,0.49,0.97,0.018
//
// The numbers are those of smoothness/sample.h; one that is not known is an empty cell. Fields with commas or quotes
// are quoted as in RFC 4180. The recorder writes the file while the run goes on, the fit reads it.

#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "gluon/smoothness/sample.h"

namespace gluon {

class TrajectoryCsvWriter {
 public:
  /// Opens `path` for appending and writes the header when the file is new. `layers` says what will be measured and
  /// how; its samples are not looked at. In an existing file, a last line without a break, as a killed run leaves it,
  /// and the rows after step `keep_through` are dropped first. Throws InputError, and leaves the file as it is, when it
  /// cannot be read, has other columns, or when a row that stays has another estimator or its layer another group,
  /// norm or dual method; also when the file cannot be written.
  TrajectoryCsvWriter(std::filesystem::path path, const Trajectory& layers,
                      std::optional<int64_t> keep_through = std::nullopt);

  /// Adds one row; `layer` names it, its own samples are not looked at. Throws InputError on a line break in a name.
  void append(const LayerTrajectory& layer, const Sample& sample);

  /// Hands all rows to the operating system. Throws InputError when that fails, such as on a full disk.
  void flush();

 private:
  std::uintmax_t kept_bytes(const Trajectory& layers, std::optional<int64_t> keep_through) const;

  std::filesystem::path path_;
  Estimator estimator_;
  std::ofstream file_;
  std::string rows_;  // not yet written
};

/// All samples of a file, layers in the order of their first row. Columns are found by name and others are ignored; a
/// last line without a break is too, because it may have been cut inside a number. Throws InputError on missing
/// columns, bad cells, two estimators in one file, or a layer that changes its group, norm or dual method.
Trajectory read_trajectory_csv(const std::filesystem::path& path);

/// Whether `line` is the header of such a file, perhaps of an incomplete one.
bool is_trajectory_csv_header(const std::string& line);

}  // namespace gluon
