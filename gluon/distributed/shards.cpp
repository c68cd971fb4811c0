#include "gluon/distributed/shards.h"

#include <ATen/ATen.h>
#include <c10/core/ScalarType.h>

#include <sstream>

#include "gluon/check.h"

namespace gluon {
namespace {

constexpr int64_t kBucketBytes = int64_t{25} << 20;

// A part of a bucket's memory, shaped as the layer.
at::Tensor part(const at::Tensor& flat, int64_t& offset, at::IntArrayRef sizes) {
  const int64_t count = c10::multiply_integers(sizes);
  const at::Tensor result = flat.narrow(0, offset, count).view(sizes);
  offset += count;
  return result;
}

// "momentum/wte.weight 6 50304 768": what others must know to receive an entry.
std::string describe(const std::map<std::string, at::Tensor>& entries) {
  std::ostringstream text;
  for (const auto& [name, tensor] : entries) {
    text << name << '\t' << static_cast<int>(tensor.scalar_type());
    for (const int64_t size : tensor.sizes()) text << ' ' << size;
    text << '\n';
  }
  return text.str();
}

std::map<std::string, at::Tensor> allocate(const std::string& description) {
  std::map<std::string, at::Tensor> entries;
  std::istringstream lines(description);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t tab = line.find('\t');
    std::istringstream numbers(line.substr(tab + 1));
    int type = 0;
    numbers >> type;
    std::vector<int64_t> sizes;
    for (int64_t size = 0; numbers >> size;) sizes.push_back(size);
    entries[line.substr(0, tab)] = at::empty(sizes, static_cast<at::ScalarType>(type));
  }
  return entries;
}

}  // namespace

Shards::Shards(std::vector<Layer> layers, std::vector<int> owners, CollectivePtr collective)
    : layers_(std::move(layers)), owners_(std::move(owners)), collective_(std::move(collective)) {}

std::vector<Shards::Bucket> Shards::make_buckets(const std::vector<bool>& taken) const {
  std::vector<Bucket> buckets;
  std::map<std::string, std::pair<std::size_t, int64_t>>
      open;  // the bucket a kind of layer goes to, and its bytes
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (!taken[i]) continue;
    const at::Tensor& parameter = layers_[i].parameter;
    const auto bytes = static_cast<int64_t>(parameter.nbytes());
    const std::string kind = join(owners_[i], ' ', parameter.scalar_type(), ' ', parameter.device());
    auto found = open.find(kind);
    if (found == open.end() || found->second.second + bytes > kBucketBytes) {
      buckets.push_back({owners_[i], {}});
      found = open.insert_or_assign(kind, std::pair(buckets.size() - 1, int64_t{0})).first;
    }
    buckets[found->second.first].layers.push_back(i);
    found->second.second += bytes;
  }
  return buckets;
}

void Shards::reduce_gradients() const {
  if (alone()) return;
  at::Tensor counts = at::zeros({static_cast<int64_t>(layers_.size())}, at::kInt);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    counts[static_cast<int64_t>(i)] = layers_[i].parameter.grad().defined() ? 1 : 0;
  }
  collective_->all_reduce(counts)->wait();
  std::vector<bool> taken;
  for (std::size_t i = 0; i < layers_.size(); ++i) taken.push_back(counts.data_ptr<int>()[i] > 0);

  struct Moving {
    Bucket bucket;
    at::Tensor flat;
    ExchangePtr exchange;
  };
  std::vector<Moving> moving;
  for (const Bucket& bucket : make_buckets(taken)) {
    std::vector<at::Tensor> parts;
    for (const std::size_t i : bucket.layers) {
      const at::Tensor& parameter = layers_[i].parameter;
      const at::Tensor& gradient = parameter.grad();
      parts.push_back(gradient.defined() ? gradient.flatten() : at::zeros_like(parameter).flatten());
    }
    const at::Tensor flat = at::cat(parts).div_(collective_->size());
    moving.push_back({bucket, flat, collective_->reduce(flat, bucket.owner)});
  }
  for (const auto& [bucket, flat, exchange] : moving) {
    exchange->wait();
    if (bucket.owner != collective_->rank()) continue;
    int64_t offset = 0;
    for (const std::size_t i : bucket.layers) {
      at::Tensor parameter = layers_[i].parameter;
      parameter.mutable_grad() = part(flat, offset, parameter.sizes());
    }
  }
}

void Shards::gather_parameters() const {
  if (alone()) return;
  struct Moving {
    Bucket bucket;
    at::Tensor flat;
    ExchangePtr exchange;
  };
  std::vector<Moving> moving;
  for (const Bucket& bucket : make_buckets(std::vector<bool>(layers_.size(), true))) {
    std::vector<at::Tensor> parts;
    for (const std::size_t i : bucket.layers) parts.push_back(layers_[i].parameter.detach().flatten());
    const at::Tensor flat = at::cat(parts);
    moving.push_back({bucket, flat, collective_->broadcast(flat, bucket.owner)});
  }
  for (const auto& [bucket, flat, exchange] : moving) {
    exchange->wait();
    if (bucket.owner == collective_->rank()) continue;
    int64_t offset = 0;
    for (const std::size_t i : bucket.layers) {
      at::Tensor parameter = layers_[i].parameter.detach();
      parameter.copy_(part(flat, offset, parameter.sizes()));
    }
  }
}

bool Shards::any(bool value) const {
  if (alone()) return value;
  at::Tensor count = at::scalar_tensor(value ? 1 : 0, at::kInt);
  collective_->all_reduce(count)->wait();
  return count.item<int>() > 0;
}

void Shards::gather(std::map<std::string, at::Tensor>& entries) const {
  if (alone()) return;
  const std::map<std::string, at::Tensor> mine = entries;
  for (int root = 0; root < collective_->size(); ++root) {
    const std::string description = broadcast_text(*collective_, describe(mine), root);
    std::map<std::string, at::Tensor> theirs = root == collective_->rank() ? mine : allocate(description);
    for (auto& [name, tensor] : theirs) {
      collective_->broadcast(tensor, root)->wait();
      entries[name] = tensor;
    }
  }
}

}  // namespace gluon
