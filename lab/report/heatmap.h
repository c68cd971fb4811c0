// The heatmap of a sweep as a figure, as on the page: the last group goes across, the others down; a stronger colour is
// a lower loss, by rank, and the best cell has a frame.

#pragma once

#include <string>

#include "lab/report/report_data.h"
#include "lab/report/svg.h"

namespace gluon::lab {

std::string heatmap_svg(const ReportSweep& sweep, FigureWidth width = FigureWidth::kPage);

/// A column per group of layers, then val, which is empty where a run diverged.
std::string heatmap_csv(const ReportSweep& sweep);

}  // namespace gluon::lab
