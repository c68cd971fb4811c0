// Prefetcher: training batches on the device, the next one made while the device works on the present one.
//
//   get(i):  batch i, prepared by the call before  ->  copy on the current stream;  batch i + 1 on another thread
//
// For a GPU a batch is made in pinned memory, so the copy does not hold up the caller. On the CPU, which is busy
// with the model, a batch is made when asked for. Batches are a pure function of their index: what is prepared
// decides how fast one comes, never what is in it.

#pragma once

#include <cstdint>
#include <future>
#include <memory>

#include "lab/data/dataset.h"
#include "lab/train/rank_share.h"

namespace gluon::lab {

/// Not for use from several threads at once. Its end waits for the batch in preparation.
class Prefetcher {
 public:
  Prefetcher(std::shared_ptr<const Dataset> dataset, int64_t batch, torch::Device device);

  /// With `ahead` a thread prepares the next batch, whatever the device; without, none does. With a `share` only this
  /// rank's examples come.
  Prefetcher(std::shared_ptr<const Dataset> dataset, int64_t batch, torch::Device device, bool ahead,
             const RankShare& share = RankShare(nullptr));

  /// Training batch `index` of `batch` examples on the device, for work on the current stream. In ascending order
  /// batches come prepared; any other order is right, too, and an unprepared one is made on the spot. Throws what
  /// the dataset throws for this index; an error of a batch prepared but not asked for is dropped.
  Batch get(int64_t index);

 private:
  std::shared_ptr<const Dataset> dataset_;
  int64_t batch_;
  torch::Device device_;
  bool ahead_;
  RankShare share_;
  int64_t next_index_ = 0;
  std::future<Batch> next_;  // batch next_index_, or nothing; of std::async, so its end waits for the thread
};

}  // namespace gluon::lab
