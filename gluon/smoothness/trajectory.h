// Files of samples.
//
// smoothness.csv holds the samples of a run, one row per layer and sample:
//
//   step,layer,group,norm,dual_method,estimator,gradient_change,displacement,smoothness,gradient,momentum,alignment,radius
//   50,h.0.attn.c_q.weight,hidden,"scaled(1,spectral)",exact,same_batch,0.031,0.018,1.72,0.52,0.49,0.97,0.018
//
// The numbers are those of sample.h; a missing one is an empty cell. Quotes follow core/csv.h. The trainer writes the
// file during a run, the fit reads it.
//
// A text log of the paper's authors has lines such as
//
//   step:50/5001 (24) L_estimated: 2.0423 norm_grad: 0.0258          NanoGPT
//   step:1 (0) L_estimated: 4237.2480 norm_grad: 8.9521              CNN, full batch
//   step:0.08 (0) L_estimated: 311.4051 norm_grad: 2.0417            CNN, mini-batches
//
// The first is the sample Lhat = 2.0423, |g|* = 0.0258 of layer "24" at step 50. Steps with a fraction count epochs and
// are rounded: such a log gets steps 1, 2, ... in the order of each layer's samples. All other lines (losses, source
// code) are skipped. The logs do not record how the gradients were taken: the estimator is unknown, and layers have no
// group.

#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include "gluon/smoothness/sample.h"

namespace gluon {

/// The inverse of estimator_name(); throws InputError that lists the names.
Estimator parse_estimator(std::string_view name);

/// The samples at `path`, layers in the order of their first row or line. A folder is a run and has a smoothness.csv.
/// A file is a CSV when its name ends in .csv or its first line names one of the columns above, else a log. Columns are
/// found by name and may be in any order; other columns are ignored. A last line without a line break may be incomplete
/// and is skipped. Throws InputError when there are no samples, on missing columns, bad cells or numbers, two
/// estimators in one file, or a layer that changes its group, norm or dual method.
Trajectory read_trajectory(const std::filesystem::path& path);

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

}  // namespace gluon
