// A report as event files for TensorBoard: the log and the samples of every layer.

#pragma once

#include <filesystem>

#include "lab/report/report_data.h"

namespace gluon::lab {

/// Creates `folder` and writes FOLDER/<run>/events.out.tfevents.gluon for each run: the scalars of its log
/// (lab/train/event_file.h), then smoothness/<layer>, gradient/<layer> and alignment/<layer>. Returns the number of
/// runs. Throws InputError when `folder` is a file or not empty, and when there is no run.
std::size_t write_tensorboard(const ReportData& data, const std::filesystem::path& folder);

}  // namespace gluon::lab
