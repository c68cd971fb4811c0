// TokenDataset: windows of a stream of tokens, for language models.
//
//   stream      t_0 t_1 ... t_{N-1} (token_stream.h)
//   window w    inputs  t_{wT} ... t_{wT+T-1},  targets  t_{wT+1} ... t_{wT+T};  W = (N - 1) / T windows
//   validation  the first windows of a stream of its own, or the last ones of the training stream
//   training    all other windows of the training stream, in a different order every epoch
//
// No position of a stream is a target twice, so training and validation share no target.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/data/dataset.h"
#include "lab/data/token_stream.h"

namespace gluon::lab {

struct TokenOptions {
  int64_t context = 64;           // T
  uint64_t seed = 0;              // of the training order
  int64_t vocabulary = 0;         // classes; 0 = from the tokenizer or the data
  std::string validation;         // files of the validation stream; empty: the end of the training data
  int64_t validation_tokens = 0;  // 0: all of `validation`; without it a tenth of the windows, at least 1, at most 64
};

class TokenDataset : public Dataset {
 public:
  /// Files as for TokenStream::from_files(). Reads every token once to check it. Throws InputError on bad options, files
  /// that cannot be read, a token >= vocabulary, a stream too short for two windows, and too few tokens for the
  /// validation that is asked for.
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

  /// The data with the largest vocabulary, for messages.
  const std::string& source_of_largest_token() const {
    const bool validation = validation_ && validation_->vocabulary() > training_.vocabulary();
    return validation ? validation_->source() : training_.source();
  }
  std::string describe() const override;

  int64_t tokens() const { return training_.size(); }
  const TokenStream& training_stream() const { return training_; }

 private:
  TokenDataset(TokenStream training, const TokenOptions& options, const Tokenizer* tokenizer);
  int64_t windows_of(const TokenStream& stream, int64_t needed) const;
  // The windows that hold `validation_tokens`.
  int64_t windows_asked_for(int64_t available, const TokenStream& stream) const;
  Batch windows(const TokenStream& stream, const std::vector<int64_t>& numbers) const;

  TokenOptions options_;
  TokenStream training_;
  std::optional<TokenStream> validation_;  // none: the end of training_
  int64_t train_windows_ = 0;
  int64_t validation_windows_ = 0;
};

}  // namespace gluon::lab
