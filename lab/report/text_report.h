// The report as text for a terminal: tables with sparklines.

#pragma once

#include <span>
#include <string>

#include "lab/report/report_data.h"

namespace gluon::lab {

/// A bar chart of `width` characters, scaled from the smallest to the largest value; each shows the mean of its part of
/// the values. Parts without finite values are blank; fewer values than `width` give a shorter line.
std::string sparkline(std::span<const double> values, std::size_t width);

/// Losses, constants of each layer, radii and sweeps of all runs.
std::string text_report(const ReportData& data);

}  // namespace gluon::lab
