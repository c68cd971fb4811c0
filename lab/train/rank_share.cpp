#include "lab/train/rank_share.h"

#include "gluon/check.h"

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
    if (count > 0)
      parts.push_back({mine.inputs.narrow(0, begin, count), mine.targets.narrow(0, begin, count)});
    begin += count;
  }
  return parts;
}

std::vector<double> RankShare::sum(std::vector<double> numbers) const {
  if (alone()) return numbers;
  torch::Tensor tensor = torch::tensor(numbers, torch::kDouble);
  collective_->all_reduce(tensor)->wait();
  return {tensor.data_ptr<double>(), tensor.data_ptr<double>() + tensor.numel()};
}

std::vector<double> RankShare::gather(const std::vector<double>& numbers) const {
  if (alone()) return numbers;
  const auto rank = static_cast<std::size_t>(collective_->rank());
  std::vector<double> counts(static_cast<std::size_t>(collective_->size()), 0);
  counts[rank] = static_cast<double>(numbers.size());
  std::vector<double> all;
  for (std::size_t root = 0; const double count : sum(counts)) {
    torch::Tensor theirs = root == rank ? torch::tensor(numbers, torch::kDouble)
                                        : torch::empty({static_cast<int64_t>(count)}, torch::kDouble);
    if (count > 0) collective_->broadcast(theirs, static_cast<int>(root))->wait();
    all.insert(all.end(), theirs.data_ptr<double>(), theirs.data_ptr<double>() + theirs.numel());
    ++root;
  }
  return all;
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
