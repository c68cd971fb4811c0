#include "lab/train/run_writer.h"

namespace gluon::lab {

RunWriter::RunWriter(RunDirectory& directory, Progress& progress, const Recorder* recorder, int64_t steps_taken)
    : directory_(directory), progress_(progress) {
  if (recorder != nullptr) samples_.emplace(directory.smoothness(), recorder->measured(), steps_taken);
  if (std::filesystem::exists(directory.path() / kEventFile)) add_event_file();
}

void RunWriter::add_event_file() { event_path_ = directory_.path() / kEventFile; }

void RunWriter::append(const LogRow& row, const Pace& pace) {
  directory_.append(row);
  if (events_) {
    events_->append(row);
  } else if (!event_path_.empty()) {
    events_.emplace(event_path_, directory_.log());  // which has been rewound to the checkpoint
  }
  if (row.val) val_ = row.val;
  progress_.show({row.step, pace.steps, row.loss, val_, pace.tokens_per_second, row.optimizer, pace.seconds_left,
                  row.val.has_value()});
}

void RunWriter::append(const Trajectory& samples) {
  for (const LayerTrajectory& layer : samples.layers) {
    for (const Sample& sample : layer.samples) samples_->append(layer, sample);
  }
  samples_->flush();
}

void RunWriter::save(Checkpoint checkpoint) {
  checkpoint.text["config"] = directory_.config();
  save_checkpoint(directory_.checkpoints(), checkpoint);
}

}  // namespace gluon::lab
