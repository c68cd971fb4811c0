// ReportData as JSON, the input of the page. web/src/data.ts declares the same structure.

#pragma once

#include <string>

#include "lab/report/report_data.h"

namespace gluon::lab {

struct ReportLimits {
  std::size_t log_points = 2000;    // per curve
  std::size_t layer_samples = 400;  // per layer
};

/// Long series are thinned, numbers have seven digits, and numbers that are not finite are null. "<" is escaped,
/// so that the text can be placed inside a <script> element.
std::string report_json(const ReportData& data, const ReportLimits& limits = {});

/// Selects points of a long series so that its chart looks the same: of each of many equal parts the smallest and the
/// largest value, so no spike is lost, and one that is not finite (a run that diverged), which is a gap in the chart.
/// Returns ascending indices of at most `limit` values, including the first and the last; all of them if they are not
/// more. Throws InputError when `limit` is below 8.
std::vector<std::size_t> thin(std::span<const double> values, std::size_t limit);

}  // namespace gluon::lab
