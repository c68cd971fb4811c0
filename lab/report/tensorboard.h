// A report as event files for TensorBoard: what the log says, and the samples of every layer.

#pragma once

#include <filesystem>

#include "lab/report/report_data.h"

namespace gluon::lab {

/// The event file of one run: the scalars of its log (lab/train/event_file.h), then smoothness/<layer>,
/// gradient/<layer> and alignment/<layer>.
std::string run_events(const ReportRun& run);

/// Writes FOLDER/<run>/events.out.tfevents.gluon for each run; `folder` is made. Returns how many. Throws InputError
/// when it is a file or holds anything already, and when there is no run.
std::size_t write_tensorboard(const ReportData& data, const std::filesystem::path& folder);

}  // namespace gluon::lab
