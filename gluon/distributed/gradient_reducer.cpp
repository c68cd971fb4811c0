#include "gluon/distributed/gradient_reducer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <map>

#include "gluon/core/check.h"

namespace gluon {

void ReductionOptions::validate() const {
  GLUON_CHECK(bucket_bytes >= 1, "ReductionOptions: bucket_bytes must be >= 1, got ", bucket_bytes);
}

GradientReducer::GradientReducer(std::span<const Layer> layers, std::span<const int> owners,
                                 CollectivePtr collective, ReductionOptions options)
    : collective_(std::move(collective)), options_(options) {
  options_.validate();
  if (idle()) return;
  for (const Layer& layer : layers) slots_.push_back({.layer = layer});
  add_buckets(owners);
}

GradientReducer::~GradientReducer() { remove_hooks(); }

void GradientReducer::add_buckets(std::span<const int> owners) {
  // The backward pass reaches the last layers first. A window of layers fills its owners' buckets together: a bucket
  // with layers from everywhere could not leave before the end.
  std::map<std::string, std::size_t> window;
  int64_t window_bytes = 0;
  for (std::size_t i = slots_.size(); i-- > 0;) {
    const at::Tensor& parameter = slots_[i].layer.parameter;
    const auto bytes = static_cast<int64_t>(parameter.nbytes());
    if (window_bytes + bytes > options_.bucket_bytes) {
      window.clear();
      window_bytes = 0;
    }
    window_bytes += bytes;
    const std::string kind = join(owners[i], ' ', parameter.scalar_type(), ' ', parameter.device());
    const auto [found, fresh] = window.emplace(kind, buckets_.size());
    if (fresh) {
      at::TensorOptions like = parameter.options().requires_grad(false);
      buckets_.push_back({.owner = owners[i], .like = options_.exact ? like.dtype(at::kDouble) : like});
    }
    Bucket& bucket = buckets_[found->second];
    slots_[i].bucket = found->second;
    slots_[i].offset = bucket.entries;
    bucket.slots.push_back(i);
    bucket.entries += parameter.numel();
  }
  for (Bucket& bucket : buckets_) {
    for (const std::size_t i : bucket.slots) slots_[i].flag = bucket.entries++;
  }
}

void GradientReducer::add_hooks() {
  using torch::autograd::variable_list;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (!slots_[i].layer.parameter.requires_grad()) continue;
    slots_[i].accumulator = torch::autograd::impl::grad_accumulator(slots_[i].layer.parameter);
    const auto hook = [this, i](const variable_list& outputs, const variable_list&) {
      arrived(i);
      return outputs;
    };
    slots_[i].hook =
        slots_[i].accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(hook));
  }
}

void GradientReducer::remove_hooks() {
  for (Slot& slot : slots_) {
    if (slot.accumulator) slot.accumulator->del_post_hook(slot.hook);
    slot.accumulator = nullptr;
  }
}

void GradientReducer::open() {
  for (Bucket& bucket : buckets_) {
    bucket.values = at::zeros({bucket.entries}, bucket.like);
    bucket.missing = bucket.slots.size();
    bucket.exchange = nullptr;
  }
  for (Slot& slot : slots_) {
    slot.passes = 0;
    slot.taken = false;
  }
  next_ = 0;
}

void GradientReducer::begin(int64_t backward_passes) {
  GLUON_CHECK(backward_passes >= 0, "GradientReducer: the number of backward passes must be >= 0, got ",
              backward_passes);
  if (idle() || backward_passes == 0) return;
  open();
  passes_ = backward_passes;
  remove_hooks();  // of a begin() that nothing followed
  add_hooks();
}

void GradientReducer::cancel() {
  const std::lock_guard lock(mutex_);
  passes_ = 0;
  remove_hooks();
  for (Bucket& bucket : buckets_) {
    bucket.values = at::Tensor();
    bucket.exchange = nullptr;
  }
}

void GradientReducer::arrived(std::size_t index) {
  const std::lock_guard lock(mutex_);
  if (passes_ == 0) return;
  Slot& slot = slots_[index];
  ++slot.passes;
  GLUON_CHECK(slot.passes <= passes_, "GradientReducer: layer '", slot.layer.name,
              "' has a gradient of more backward passes than the ", passes_, " announced");
  const bool last = slot.passes == passes_;
  if (last || options_.exact) take_gradient(slot);
  if (!last) return;
  --buckets_[slot.bucket].missing;
  send_full_buckets();
}

void GradientReducer::take_gradient(Slot& slot) {
  const at::NoGradGuard no_grad;
  at::Tensor parameter = slot.layer.parameter;
  const at::Tensor& gradient = parameter.grad();
  if (!gradient.defined()) return;
  const at::Tensor& values = buckets_[slot.bucket].values;
  // Divided before the sum, which might be too large for float16; exact sums after it.
  const double share = options_.mean && !options_.exact ? 1.0 / collective_->size() : 1.0;
  values.narrow(0, slot.offset, gradient.numel()).view(gradient.sizes()).add_(gradient, share);
  values[slot.flag].fill_(1);
  slot.taken = true;
  // Or the next backward pass would add to it, in its own precision.
  if (options_.exact) parameter.mutable_grad() = at::Tensor();
}

void GradientReducer::send_full_buckets() {
  for (; next_ < buckets_.size() && buckets_[next_].missing == 0; ++next_) {
    Bucket& bucket = buckets_[next_];
    bucket.exchange = collective_->reduce(bucket.values, bucket.owner);
  }
}

void GradientReducer::finish() {
  if (idle()) return;
  remove_hooks();
  if (passes_ == 0) open();
  for (Slot& slot : slots_) {
    // Not yet under way: all of it, or what passes beyond those announced left.
    if (passes_ == 0 || slot.passes < passes_) take_gradient(slot);
  }
  passes_ = 0;
  for (Bucket& bucket : buckets_) bucket.missing = 0;
  send_full_buckets();
  for (Bucket& bucket : buckets_) {
    bucket.exchange->wait();
    if (bucket.owner == collective_->rank()) deliver(bucket);
    bucket.values = at::Tensor();
    bucket.exchange = nullptr;
  }
}

void GradientReducer::deliver(const Bucket& bucket) {
  const at::NoGradGuard no_grad;
  at::Tensor values = bucket.values;
  if (options_.mean && options_.exact) values.div_(collective_->size());
  for (const std::size_t i : bucket.slots) {
    const Slot& slot = slots_[i];
    at::Tensor parameter = slot.layer.parameter;
    const at::Tensor gradient = values.narrow(0, slot.offset, parameter.numel()).view(parameter.sizes());
    parameter.mutable_grad() = anybody_has(slot) ? gradient.to(parameter.scalar_type()) : at::Tensor();
  }
}

// Asks the device only where this rank does not know.
bool GradientReducer::anybody_has(const Slot& slot) const {
  return slot.taken || buckets_[slot.bucket].values[slot.flag].item<double>() > 0;
}

}  // namespace gluon
