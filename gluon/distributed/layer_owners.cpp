#include "gluon/distributed/layer_owners.h"

#include <ATen/ATen.h>
#include <c10/core/ScalarType.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>

#include "gluon/core/check.h"

namespace gluon {
namespace {

constexpr std::size_t kPackedBytes = std::size_t{1} << 20;  // larger parameters are sent one by one, without a copy

// The dtypes and sizes that a receiver must know.
std::string describe(const std::map<std::string, at::Tensor>& entries) {
  nlohmann::json description;
  for (const auto& [name, tensor] : entries) {
    description[name] = nlohmann::json::array({tensor.scalar_type(), tensor.sizes().vec()});
  }
  std::string bytes;
  nlohmann::json::to_cbor(description, bytes);
  return bytes;
}

std::map<std::string, at::Tensor> allocate(const std::string& bytes) {
  std::map<std::string, at::Tensor> entries;
  const nlohmann::json description = nlohmann::json::from_cbor(bytes);
  for (const auto& [name, entry] : description.items()) {
    entries[name] = at::empty(entry[1].get<std::vector<int64_t>>(), entry[0].get<at::ScalarType>());
  }
  return entries;
}

}  // namespace

LayerOwners::LayerOwners(std::vector<Layer> layers, std::vector<int> owners, const std::vector<int64_t>& phases,
                         CollectivePtr collective, const ReductionOptions& options)
    : layers_(std::move(layers)),
      owners_(std::move(owners)),
      collective_(std::move(collective)),
      gradients_(std::make_unique<GradientReducer>(layers_, owners_, collective_, options)) {
  if (!alone()) add_buckets(phases);
}

void LayerOwners::reduce_gradients() {
  gradients_->finish();
  reduced_ = true;
}

void LayerOwners::take_gradients() {
  if (!reduced_) gradients_->finish();
  reduced_ = false;
}

void LayerOwners::cancel_gradients() {
  gradients_->cancel();
  reduced_ = false;
}

void LayerOwners::add_buckets(const std::vector<int64_t>& phases) {
  std::map<std::tuple<int64_t, int, std::string>, std::vector<std::size_t>> kinds;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const at::Tensor& parameter = layers_[i].parameter;
    const std::string kind =
        parameter.nbytes() >= kPackedBytes ? layers_[i].name : join(parameter.scalar_type(), ' ', parameter.device());
    kinds[{phases[i], owners_[i], kind}].push_back(i);
  }
  for (auto& [kind, members] : kinds) {
    buckets_.push_back({.phase = std::get<0>(kind), .owner = std::get<1>(kind), .layers = std::move(members)});
  }
}

void LayerOwners::send_parameters(int64_t end) {
  for (; next_ < buckets_.size() && buckets_[next_].phase < end; ++next_) send(buckets_[next_]);
}

void LayerOwners::finish_parameters() {
  send_parameters(std::numeric_limits<int64_t>::max());
  for (Bucket& bucket : buckets_) receive(bucket);
  next_ = 0;
}

void LayerOwners::send(Bucket& bucket) const {
  const at::Tensor& first = layers_[bucket.layers.front()].parameter;
  if (bucket.layers.size() == 1 && first.is_contiguous()) {
    bucket.values = first.detach().view(-1);
  } else {
    std::vector<at::Tensor> parts;
    for (const std::size_t i : bucket.layers) parts.push_back(layers_[i].parameter.detach().flatten());
    bucket.values = at::cat(parts);
  }
  bucket.exchange = collective_->broadcast(bucket.values, bucket.owner);
}

void LayerOwners::receive(Bucket& bucket) const {
  bucket.exchange->wait();
  int64_t offset = 0;
  for (const std::size_t i : bucket.layers) {
    const at::Tensor parameter = layers_[i].parameter.detach();
    const at::Tensor part = bucket.values.narrow(0, offset, parameter.numel()).view(parameter.sizes());
    if (bucket.owner != rank() && !part.is_alias_of(parameter)) parameter.copy_(part);
    offset += parameter.numel();
  }
  bucket.exchange = nullptr;
  bucket.values = at::Tensor();
}

at::Tensor LayerOwners::sum(at::Tensor tensor) const {
  if (!alone()) collective_->all_reduce(tensor)->wait();
  return tensor;
}

void LayerOwners::gather(std::map<std::string, at::Tensor>& entries) const {
  if (alone()) return;
  std::map<std::string, at::Tensor> mine;
  for (const auto& [name, tensor] : entries) mine[name] = tensor.cpu().contiguous();
  for (int root = 0; root < collective_->size(); ++root) {
    const std::string description = broadcast_text(*collective_, describe(mine), root);
    std::map<std::string, at::Tensor> theirs = root == rank() ? mine : allocate(description);
    for (auto& [name, tensor] : theirs) collective_->broadcast(tensor, root)->wait();
    if (root != rank()) entries.merge(theirs);
  }
}

}  // namespace gluon
