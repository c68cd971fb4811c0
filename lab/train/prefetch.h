// Prefetcher: training batches on the device; the next one is made while the device works on the current one.
//
//   get(i):  batch i, prepared by the previous call  ->  copy on the current stream;  batch i + 1 on another thread
//
// For a GPU a batch is made in pinned memory, so that the copy does not block the caller. On the CPU, which is busy
// with the model, a batch is made on request. Batches are a pure function of their index: preparing them changes the
// speed, never the values.

#pragma once

#include <cstdint>
#include <future>
#include <memory>

#include "lab/data/dataset.h"
#include "lab/train/rank_share.h"

namespace gluon::lab {

/// Not thread-safe. The destructor waits for the batch in preparation.
class Prefetcher {
 public:
  /// `ahead` decides whether a thread prepares the next batch. With a `share` batches hold only this rank's examples.
  Prefetcher(std::shared_ptr<const Dataset> dataset, int64_t batch, torch::Device device, bool ahead,
             const RankShare& share = RankShare(nullptr));

  /// Training batch `index` of `batch` examples on the device, for work on the current stream. Batches requested in
  /// ascending order are prepared; any other order works, too, more slowly. Throws what the dataset throws for this
  /// index; the error of a batch that was prepared but never requested is dropped.
  Batch get(int64_t index);

 private:
  std::shared_ptr<const Dataset> dataset_;
  int64_t batch_;
  torch::Device device_;
  bool ahead_;
  RankShare share_;
  int64_t next_index_ = 0;
  std::future<Batch> next_;  // batch next_index_, or nothing; its destructor waits, as it comes from std::async
};

}  // namespace gluon::lab
