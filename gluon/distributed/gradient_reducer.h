// GradientReducer: adds up the gradients of all ranks at the owner of each layer.
//
//   backward pass   -> gradients fill buckets, last layer first; a full bucket is sent at once
//   finish()        -> sends the rest; the owner of a layer has the sum of all ranks as its gradient
//
// So most of the exchange overlaps with the backward pass. A bucket holds neighbouring layers of one owner. All ranks
// send the same buckets in the same order, whatever the order in which their gradients arrive.

#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "gluon/core/layer.h"
#include "gluon/distributed/collective.h"

namespace torch::autograd {
struct Node;
}

namespace gluon {

class GradientReducer {
 public:
  /// `owners` holds the owning rank of each layer.
  GradientReducer(std::span<const Layer> layers, std::span<const int> owners, CollectivePtr collective,
                  ReductionOptions options);
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// Announces `backward_passes` that accumulate one gradient; buckets are sent during the last of them. Without this
  /// call finish() sends the gradients it finds. The parameters have autograd hooks from here to finish() or cancel().
  /// The hooks keep autograd's nodes on the current stream, so no CUDA graph can be captured in between.
  void begin(int64_t backward_passes);

  /// Undoes begin().
  void cancel();

  /// Replaces the gradients of this rank's layers by the mean (or sum) over the ranks. A rank without a gradient counts
  /// as zeros; without any the gradient is undefined. Gradients of other ranks' layers become undefined with `exact`,
  /// and stay as they are otherwise.
  void finish();

 private:
  struct Slot {
    Layer layer;
    std::size_t bucket = 0;
    int64_t offset = 0;                                  // of its values in the bucket
    int64_t flag = 0;                                    // entry of the bucket: > 0 when any rank has a gradient
    int64_t passes = 0;                                  // backward passes since begin() that reached it
    bool taken = false;                                  // this rank has a gradient
    std::shared_ptr<torch::autograd::Node> accumulator;  // holds the hook; null without one
    uintptr_t hook = 0;
  };
  struct Bucket {
    int owner;
    at::TensorOptions like;
    std::vector<std::size_t> slots;
    int64_t entries = 0;
    // During a step:
    at::Tensor values;
    std::size_t missing = 0;  // slots without a gradient so far
    ExchangePtr exchange;
  };

  bool idle() const { return collective_->name() == "single" && !options_.exact; }
  void add_buckets(std::span<const int> owners);
  void add_hooks();
  void remove_hooks();
  void clear_buckets();
  void on_gradient(std::size_t slot);  // called by a hook
  void take_gradient(Slot& slot);      // adds it to the bucket
  void send_full_buckets();
  void deliver(const Bucket& bucket);  // to its layers, on their owner

  CollectivePtr collective_;
  ReductionOptions options_;
  std::vector<Slot> slots_;
  std::vector<Bucket> buckets_;
  std::mutex mutex_;      // the backward pass of a GPU runs in another thread
  int64_t passes_ = 0;    // announced by begin(); 0: none
  std::size_t next_ = 0;  // the next bucket to send
};

}  // namespace gluon
