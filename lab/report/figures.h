// A report as files in a new folder: its figures, one SVG and one CSV per chart, or event files for TensorBoard.
//
//   loss                       training and validation loss of all runs
//   <run>-layer-<layer>        Lhat and L0 + L1 |g|* over the steps
//   <run>-blocks-<type>        Lhat of all blocks, per type of layer
//   <run>-radii                radii over the run
//   <run>-optimizer            the optimizer's share of the step's time
//   <run>-alignment            alignment, per group of layers
//   <run>-predicted-radii      predicted and used radii, per group of layers
//   sweep-<name>               a heatmap of validation losses

#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lab/report/figure.h"
#include "lab/report/report_data.h"

namespace gluon::lab {

/// The charts with axes, in the order above.
std::vector<Figure> report_figures(const ReportData& data);

/// Creates `folder`, writes all figures into it and returns the number of charts. Throws InputError when `folder` is a
/// file or not empty.
std::size_t write_figures(const ReportData& data, const std::filesystem::path& folder,
                          FigureWidth width = FigureWidth::kPage);

/// Creates `folder` and writes FOLDER/<run>/events.out.tfevents.gluon for each run: the scalars of its log
/// (lab/train/event_file.h), then smoothness/<layer>, gradient/<layer> and alignment/<layer>. Returns the number of
/// runs. Throws InputError when `folder` is a file or not empty, and when there is no run.
std::size_t write_tensorboard(const ReportData& data, const std::filesystem::path& folder);

/// A folder of results that is whole or empty: what has been written into it is removed again unless keep() is called.
class OutputFolder {
 public:
  /// Creates `path`. Throws InputError, which names `flag`, when it is a file, is not empty or cannot be created.
  OutputFolder(const std::string& flag, std::filesystem::path path);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  void keep() { kept_ = true; }

 private:
  std::filesystem::path path_;
  bool kept_ = false;
};

/// Replaces every character of `text` that is not a letter, a digit, '.', '-' or '_' by '_'.
std::string file_name(const std::string& text);

}  // namespace gluon::lab
