// The report for a terminal: tables with sparklines.

#pragma once

#include <span>
#include <string>

#include "lab/report/report_data.h"

namespace gluon::lab {

/// `width` characters that go up and down with the values, the least lowest, the greatest highest; each shows the mean
/// of its stretch. Values that are not finite are blank; fewer values than `width` give a shorter line.
std::string sparkline(std::span<const double> values, std::size_t width);

/// Losses, constants of each layer, radii and sweeps of all runs.
std::string text_report(const ReportData& data);

}  // namespace gluon::lab
