#include "gluon/distributed/gradient_reducer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <map>
#include <utility>

#include "gluon/core/check.h"

namespace gluon {

void ReductionOptions::validate() const {
  GLUON_CHECK(bucket_bytes >= 1, "ReductionOptions: bucket_bytes must be >= 1, got ", bucket_bytes);
}

GradientReducer::GradientReducer(std::span<const Layer> layers, std::span<const int> owners, CollectivePtr collective,
                                 ReductionOptions options)
    : collective_(std::move(collective)), options_(options) {
  options_.validate();
  if (idle()) return;
  for (const Layer& layer : layers) slots_.push_back({.layer = layer});
  add_buckets(owners);
}

GradientReducer::~GradientReducer() { remove_hooks(); }

void GradientReducer::add_buckets(std::span<const int> owners) {
  // The backward pass reaches the last layers first. Buckets hold layers of one window only: one with layers from the
  // whole model would be full only at the end.
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
    // A shared_ptr in LibTorch 1.13, an intrusive_ptr in 2.14: the deleter holds either.
    auto node = torch::autograd::impl::grad_accumulator(slots_[i].layer.parameter);
    auto* const accumulator = node.get();
    slots_[i].accumulator = {accumulator, [node = std::move(node)](torch::autograd::Node*) {}};
    const auto hook = [this, i](const variable_list& outputs, const variable_list&) {
      on_gradient(i);
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

void GradientReducer::clear_buckets() {
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
  clear_buckets();
  passes_ = backward_passes;
  remove_hooks();  // of a begin() without finish()
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

void GradientReducer::on_gradient(std::size_t index) {
  const std::lock_guard lock(mutex_);
  if (passes_ == 0) return;
  Slot& slot = slots_[index];
  ++slot.passes;
  GLUON_CHECK(slot.passes <= passes_, "GradientReducer: layer '", slot.layer.name,
              "' was reached by more backward passes than the ", passes_, " announced");
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
  // Divide before the sum, which may overflow float16; exact sums are divided after it.
  const double share = options_.mean && !options_.exact ? 1.0 / collective_->size() : 1.0;
  values.narrow(0, slot.offset, gradient.numel()).view(gradient.sizes()).add_(gradient, share);
  values[slot.flag].fill_(1);
  slot.taken = true;
  // Otherwise the next backward pass adds to it, in its own precision.
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
  if (passes_ == 0) clear_buckets();
  for (Slot& slot : slots_) {
    // Not taken yet: nothing was announced, or fewer backward passes came than announced.
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
    // Reads the device only when this rank has no gradient itself.
    const bool any_rank_has_one = slot.taken || values[slot.flag].item<double>() > 0;
    parameter.mutable_grad() = any_rank_has_one ? gradient.to(parameter.scalar_type()) : at::Tensor();
  }
}

}  // namespace gluon
