// GradientReducer: the gradients of all ranks, added up at the owner of each layer.
//
//   backward pass   -> layer by layer, last ones first, gradients fill buckets; a full bucket leaves at once
//   finish()        -> the rest leaves; owners have the sum of all ranks as their layer's gradient
//
// So most of the exchange happens while the backward pass goes on. A bucket holds neighbouring layers of one owner, and
// all ranks send the same buckets in the same order, whatever order their gradients come in.

#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "gluon/core/layer.h"
#include "gluon/distributed/collective.h"
#include "gluon/distributed/reduction_options.h"

namespace torch::autograd {
struct Node;
}

namespace gluon {

class GradientReducer {
 public:
  /// One owner a layer.
  GradientReducer(std::span<const Layer> layers, std::span<const int> owners, CollectivePtr collective,
                  ReductionOptions options);
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// The next `backward_passes` belong together: in the last of them buckets leave. Without this call finish() takes
  /// the gradients that are there. Hooks are on the parameters from here to finish() or cancel(): they keep autograd's
  /// nodes on today's stream, so a CUDA graph can be captured before and after, not between.
  void begin(int64_t backward_passes);

  /// Takes begin() back.
  void cancel();

  /// Owners' gradients become the mean (or sum) over the ranks; a rank without one counts as zeros, unless no rank has
  /// any. Gradients of other ranks' layers are undefined afterwards in exact sums, else as they were.
  void finish();

 private:
  struct Slot {
    Layer layer;
    std::size_t bucket = 0;
    int64_t offset = 0;                                  // of its values in the bucket
    int64_t flag = 0;                                    // where the bucket says whether there is a gradient
    int64_t passes = 0;                                  // backward passes since begin() that reached it
    bool taken = false;                                  // there is a gradient on this rank
    std::shared_ptr<torch::autograd::Node> accumulator;  // holds the hook, if there is one
    uintptr_t hook = 0;
  };
  struct Bucket {
    int owner;
    at::TensorOptions like;
    std::vector<std::size_t> slots;
    int64_t entries = 0;
    // under way
    at::Tensor values;
    std::size_t missing = 0;
    ExchangePtr exchange;
  };

  bool idle() const { return collective_->name() == "single" && !options_.exact; }
  void add_buckets(std::span<const int> owners);
  void add_hooks();
  void remove_hooks();
  void open();                     // empty buckets
  void arrived(std::size_t slot);  // by a hook
  void take_gradient(Slot& slot);  // into its bucket
  void send_full_buckets();
  void deliver(const Bucket& bucket);  // to its owner's layers
  bool anybody_has(const Slot& slot) const;

  CollectivePtr collective_;
  ReductionOptions options_;
  std::vector<Slot> slots_;
  std::vector<Bucket> buckets_;
  std::mutex mutex_;      // a GPU's backward pass has a thread of its own
  int64_t passes_ = 0;    // of begin(); 0: hooks do nothing
  std::size_t next_ = 0;  // bucket to leave
};

}  // namespace gluon
