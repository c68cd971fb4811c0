#include "lab/train/rank_share.h"

namespace gluon::lab {

RankShare::RankShare(CollectivePtr collective)
    : collective_(collective ? std::move(collective) : make_collective("single", {})) {}

Batch RankShare::of(const Batch& batch) const {
  if (alone()) return batch;
  const int64_t examples = batch.inputs.size(0), rank = collective_->rank(), size = collective_->size();
  const int64_t begin = examples * rank / size, end = examples * (rank + 1) / size;
  return {batch.inputs.narrow(0, begin, end - begin), batch.targets.narrow(0, begin, end - begin)};
}

std::vector<double> RankShare::sum(std::vector<double> numbers) const {
  if (alone()) return numbers;
  torch::Tensor tensor = torch::tensor(numbers, torch::kDouble);
  collective_->all_reduce(tensor)->wait();
  return {tensor.data_ptr<double>(), tensor.data_ptr<double>() + tensor.numel()};
}

void RankShare::copy_from_first(std::span<const torch::Tensor> tensors) const {
  if (alone()) return;
  for (const torch::Tensor& tensor : tensors) {
    torch::Tensor contiguous = tensor.detach().contiguous();
    collective_->broadcast(contiguous, 0)->wait();
    tensor.detach().copy_(contiguous);
  }
}

}  // namespace gluon::lab
