#include "lab/report/figures.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "gluon/core/atomic_file.h"
#include "gluon/core/check.h"
#include "gluon/core/printable.h"
#include "lab/train/event_file.h"

namespace gluon::lab {
namespace {

namespace fs = std::filesystem;

// The time of the run's last row or sample, in seconds since 1970.
double written_at(const ReportRun& run) {
  std::error_code error;
  const fs::path log = run.path / "log.csv";
  const auto time = fs::last_write_time(fs::exists(log, error) ? log : run.path, error);
  if (error) return 0;
  const auto system = std::chrono::file_clock::to_sys(time);
  return std::chrono::duration<double>(system.time_since_epoch()).count();
}

// Seconds from the start of the run to `step`, by its log.
double seconds_at(const std::vector<LogRow>& log, int64_t step) {
  const auto row = std::lower_bound(log.begin(), log.end(), step,
                                    [](const LogRow& one, int64_t wanted) { return one.step < wanted; });
  if (row != log.end()) return row->seconds;
  return log.empty() ? 0 : log.back().seconds;
}

std::string run_events(const ReportRun& run) {
  const double end = written_at(run);
  const double start = run.log.empty() ? end : end - run.log.back().seconds;
  std::string bytes = event_file(run.log, end);
  for (const ReportLayer& layer : run.layers) {
    for (const Sample& sample : layer.samples) {
      std::vector<Scalar> scalars;
      for (const auto& [name, value] :
           {std::pair("smoothness/", sample.smoothness), std::pair("gradient/", sample.gradient),
            std::pair("alignment/", sample.alignment)}) {
        if (!std::isnan(value)) scalars.push_back({name + printable(layer.name), value});
      }
      bytes += scalars_record(start + seconds_at(run.log, sample.step), sample.step, scalars);
    }
  }
  return bytes;
}

}  // namespace

std::size_t write_tensorboard(const ReportData& data, const fs::path& folder) {
  GLUON_CHECK(!data.runs.empty(), "report: --tensorboard needs a run; a sweep has no curves");
  OutputFolder output("--tensorboard", folder);
  for (const ReportRun& run : data.runs) {
    const fs::path target = folder / file_name(run.name);
    fs::create_directory(target);
    write_text_atomically(target / kEventFile, run_events(run));
  }
  output.keep();
  return data.runs.size();
}

}  // namespace gluon::lab
