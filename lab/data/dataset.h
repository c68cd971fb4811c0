// Dataset: batches for training and validation as pure functions of a seed and an index.
//
// train_batch(i) is the same batch whenever and wherever it is asked for, so the position in the data is one
// number, the count of batches drawn, and a resumed run sees what the uninterrupted one would have seen. Within an
// epoch every example appears exactly once, in an order made by a keyed permutation (permutation.h), never by a
// shuffled list in memory.
//
// The functions may be called from several threads at once: a batch is prepared during a step or a validation
// (lab/train/prefetch.h). So an implementation has no state that they change.

#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gluon::lab {

/// What one evaluation of a model sees.
///   language   inputs (B, T) int64 tokens, targets (B, T) int64: the next token at every place
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

  /// Entropy in nats of the validation targets' own frequencies: what a model that ignores its input could reach.
  virtual double unigram_entropy() const = 0;

  /// One line for people: where the data came from and how much of it there is.
  virtual std::string describe() const = 0;
};

}  // namespace gluon::lab
