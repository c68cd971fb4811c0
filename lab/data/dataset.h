// Dataset: batches for training and validation as pure functions of a seed and an index.
//
// train_batch(i) always returns the same batch, so the position in the data is one number, the count of batches drawn,
// and a resumed run sees the same batches as an uninterrupted one. Within an epoch every example appears exactly once,
// in an order given by a keyed permutation (permutation.h) without a shuffled list in memory.
//
// The functions must be safe to call from several threads: the next batch is prepared during a step or a validation
// (lab/train/prefetch.h).

#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace gluon::lab {

/// The input of one evaluation of a model.
///   language   inputs (B, T) int64 tokens, targets (B, T) int64: the next token at every position
///   images     inputs (B, 3, H, W) float32 normalised, targets (B) int64 classes
struct Batch {
  torch::Tensor inputs;
  torch::Tensor targets;
};

class Dataset {
 public:
  virtual ~Dataset() = default;

  /// Training batch number `index` = 0, 1, ... of `size` examples.
  virtual Batch train_batch(int64_t index, int64_t size) const = 0;

  /// The fixed validation examples, in batches of at most `size`.
  virtual std::vector<Batch> validation(int64_t size) const = 0;

  /// Examples in one epoch.
  virtual int64_t train_examples() const = 0;

  /// Tokens (language) or images in one example, for counting throughput.
  virtual int64_t tokens_per_example() const = 0;

  /// Number of classes: vocabulary size, or labels.
  virtual int64_t classes() const = 0;

  /// Entropy in nats of the frequencies of the validation targets: the best loss of a model that ignores its input.
  virtual double unigram_entropy() const {
    torch::Tensor counts = torch::zeros({classes()}, torch::kDouble);
    for (const Batch& batch : validation(64)) counts += torch::bincount(batch.targets.flatten(), {}, classes());
    const torch::Tensor share = counts / counts.sum();
    return -torch::xlogy(share, share).sum().item<double>();
  }

  /// One line for the user: the source and the size of the data.
  virtual std::string describe() const = 0;
};

}  // namespace gluon::lab
