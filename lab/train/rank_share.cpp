#include "lab/train/rank_share.h"

#include "gluon/core/check.h"

namespace gluon::lab {

int64_t common_parts(int ranks) {
  constexpr int64_t kParts = 12;
  return (kParts + ranks - 1) / ranks * ranks;
}

RankShare::RankShare(CollectivePtr collective, int64_t parts)
    : collective_(collective ? std::move(collective) : make_collective("single", {})), parts_(parts) {
  GLUON_CHECK(parts_ == 1 || parts_ >= collective_->size(), "--parts ", parts_, " must be 1 or at least the ",
              collective_->size(), " ranks that share them");
}

RankShare::Range RankShare::own_pieces() const {
  const int64_t rank = collective_->rank(), size = collective_->size();
  return {pieces() * rank / size, pieces() * (rank + 1) / size};
}

Batch RankShare::of(const Batch& batch) const {
  if (alone()) return batch;
  const auto [first, last] = own_pieces();
  const int64_t examples = batch.inputs.size(0);
  const int64_t begin = examples * first / pieces(), end = examples * last / pieces();
  return {batch.inputs.narrow(0, begin, end - begin), batch.targets.narrow(0, begin, end - begin)};
}

std::vector<Batch> RankShare::parts(const Batch& mine, int64_t examples) const {
  std::vector<Batch> parts;
  const auto [first, last] = own_pieces();
  int64_t begin = 0;
  for (int64_t piece = first; piece < last; ++piece) {
    const int64_t count = examples * (piece + 1) / pieces() - examples * piece / pieces();
    if (count > 0) parts.push_back({mine.inputs.narrow(0, begin, count), mine.targets.narrow(0, begin, count)});
    begin += count;
  }
  return parts;
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
