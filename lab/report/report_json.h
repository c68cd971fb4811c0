// ReportData as JSON, the input of the page. web/src/data.ts declares the same structure.

#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lab/report/report_data.h"

namespace gluon::lab {

/// How far series are thinned. Curves and layers of a run share `run_points` each, those of a sweep's cells share
/// `sweep_points`; the losses get more than the others.
struct ReportLimits {
  std::size_t log_points = 2000;     // per curve, at most
  std::size_t layer_samples = 400;   // per layer, at most
  std::size_t run_points = 260'000;  // the page of 50 runs has less than 10 MB
  std::size_t sweep_points = 60'000;

  /// For a page with that many runs and sweeps. Few numbers of them have limits of their own, so that a run that
  /// appears seldom changes the others.
  static ReportLimits of(std::size_t runs, std::size_t sweeps);
};

/// Long series are thinned, numbers have seven digits, and numbers that are not finite are null. "<" is escaped,
/// so that the text can be placed inside a <script> element.
std::string report_json(const ReportData& data, const ReportLimits& limits);
std::string report_json(const ReportData& data);  // with ReportLimits::of() its runs and sweeps

/// The parts of report_json(), for a reader that does not hold all runs at once.
std::string run_json(const ReportRun& run, const ReportLimits& limits);
std::string sweep_json(const ReportSweep& sweep, const ReportLimits& limits);
std::string join_json(const FitOptions& fit, const std::vector<std::string>& skipped,
                      std::span<const std::string_view> runs, std::span<const std::string_view> sweeps);

}  // namespace gluon::lab
