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

}  // namespace gluon::lab
