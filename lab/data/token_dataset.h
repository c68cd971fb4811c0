// TokenDataset: windows of a stream of tokens, for language models.
//
//   stream    t_0 t_1 ... t_{N-1}: the concatenated files
//   window w  inputs  t_{wT} ... t_{wT+T-1},  targets  t_{wT+1} ... t_{wT+T};  W = (N - 1) / T windows
//   validation  the last windows: a tenth of W, at least one, at most 64
//   training    all windows before them, in a different order every epoch
//
// No position of the stream is a target twice, so training and validation share no target.
//
// Sources: token shards (mapped, token_shard.h), or text (also .xz), as bytes or encoded by a Tokenizer.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lab/data/dataset.h"
#include "lab/data/token_shard.h"
#include "lab/data/tokenizer.h"

namespace gluon::lab {

struct TokenOptions {
  int64_t context = 64;    // T
  uint64_t seed = 0;       // of the training order
  int64_t vocabulary = 0;  // classes; 0 = from the tokenizer or the data
};

class TokenDataset : public Dataset {
 public:
  /// Files by name, folder or pattern (expand()): token shards or text. Without a tokenizer text is read as bytes
  /// (vocabulary 256), and the vocabulary of shards is their largest token + 1. Reads every token once to check it.
  /// Throws InputError on bad options, files that cannot be read, a token >= vocabulary, and a stream too short for two
  /// windows.
  static TokenDataset from_files(const std::string& pattern, const TokenOptions& options,
                                 const Tokenizer* tokenizer = nullptr);

  /// A text in memory; errors and descriptions call it `name`.
  static TokenDataset from_text(std::string_view text, const std::string& name, const TokenOptions& options,
                                const Tokenizer* tokenizer = nullptr);

  Batch train_batch(int64_t index, int64_t size) const override;
  std::vector<Batch> validation(int64_t size) const override;
  int64_t train_examples() const override { return train_windows_; }
  int64_t tokens_per_example() const override { return options_.context; }
  int64_t classes() const override { return options_.vocabulary; }
  std::string describe() const override;

  int64_t tokens() const { return tokens_; }

 private:
  /// A part of the stream: one file, as tokens in memory or as a mapped shard.
  struct Part {
    std::string name;
    std::vector<uint16_t> encoded;
    std::optional<TokenShard> shard;
    int64_t first = 0;  // position in the stream
    std::span<const uint16_t> tokens() const { return shard ? shard->tokens() : encoded; }
  };

  explicit TokenDataset(const TokenOptions& options);
  void add_text(std::string_view text, const std::string& name, const Tokenizer* tokenizer);
  void add(Part part);
  /// Sets the vocabulary and the windows after all parts have been added.
  void finish(const std::string& source);
  void copy(int64_t position, int64_t count, int64_t* out) const;
  Batch windows(const std::vector<int64_t>& numbers) const;

  TokenOptions options_;
  std::string source_;
  std::string kind_ = "tokens";
  std::vector<Part> parts_;
  int64_t tokens_ = 0;
  int64_t train_windows_ = 0;
  int64_t validation_windows_ = 0;
};

}  // namespace gluon::lab
