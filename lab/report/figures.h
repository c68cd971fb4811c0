// The figures of a report as files: one SVG and one CSV per chart.
//
//   loss                       training and validation loss of all runs
//   <run>-layer-<layer>        Lhat and L0 + L1 |g|* over the steps
//   <run>-blocks-<type>        Lhat of all blocks, per type of layer
//   <run>-radii                radii over the run
//   <run>-optimizer            the optimizer's share of the step's time
//   <run>-alignment            alignment, per group of layers
//   <run>-predicted-radii      predicted and used radii, per group of layers
//   sweep-<name>               validation losses; a heatmap if the sweep is over two groups, else only the CSV

#pragma once

#include <filesystem>
#include <vector>

#include "lab/report/figure.h"
#include "lab/report/report_data.h"

namespace gluon::lab {

/// The charts with axes, in the order above.
std::vector<Figure> report_figures(const ReportData& data);

/// Creates `folder`, writes all figures into it and returns the number of charts. Throws InputError when `folder` is a
/// file or not empty.
std::size_t write_figures(const ReportData& data, const std::filesystem::path& folder);

}  // namespace gluon::lab
