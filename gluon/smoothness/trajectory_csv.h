// smoothness.csv: the samples of a run, one row per layer and sample.
//
//   step,layer,group,norm,dual_method,estimator,gradient_change,displacement,smoothness,gradient,momentum,alignment,radius
//   50,h.0.attn.c_q.weight,hidden,"scaled(1,spectral)",exact,same_batch,0.031,0.018,1.72,0.52,0.49,0.97,0.018
//
// The numbers are those of smoothness/sample.h; a missing one is an empty cell. Quotes follow core/csv.h. The trainer
// writes the file during a run, the fit reads it.

#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include "gluon/smoothness/sample.h"

namespace gluon {

class TrajectoryCsvWriter {
 public:
  /// Opens `path` for appending and writes the header when the file is new. `layers` says which layers are measured
  /// and how; its samples are ignored. In an existing file, the rows after step `keep_through` and an unfinished last
  /// line, as a killed run leaves it, are removed first. Throws InputError, and leaves the file as it is, when the file
  /// cannot be read or written, has other columns, or when a row to keep has another estimator, or its layer another
  /// group, norm or dual method.
  TrajectoryCsvWriter(std::filesystem::path path, const Trajectory& layers,
                      std::optional<int64_t> keep_through = std::nullopt);

  /// Adds one row; the samples in `layer` are ignored. Throws InputError on a line break in a name.
  void append(const LayerTrajectory& layer, const Sample& sample);

  /// Writes all rows to the file. Throws InputError when that fails, for example on a full disk.
  void flush();

 private:
  std::uintmax_t kept_bytes(const Trajectory& layers, std::optional<int64_t> keep_through) const;

  std::filesystem::path path_;
  Estimator estimator_;
  std::ofstream file_;
  std::string rows_;  // not yet written
};

/// All samples of a file, layers in the order of their first row. Columns are found by name and may be in any order;
/// other columns are ignored. Throws InputError on missing columns, bad cells, two estimators in one file, or a layer
/// that changes its group, norm or dual method.
Trajectory read_trajectory_csv(const std::filesystem::path& path);

/// Whether `line` is the header of such a file: it names at least one of the columns.
bool is_trajectory_csv_header(std::string_view line);

}  // namespace gluon
