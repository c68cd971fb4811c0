#include "lab/data/token_dataset.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "gluon/core/check.h"
#include "lab/data/permutation.h"

namespace gluon::lab {
namespace {

constexpr uint64_t kOrderStream = 1;  // of mixed_bits: the order of an epoch
constexpr double kValidationShare = 0.1;
constexpr int64_t kValidationWindows = 64;

}  // namespace

TokenDataset::TokenDataset(TokenStream training, const TokenOptions& options, const Tokenizer* tokenizer)
    : options_(options), training_(std::move(training)) {
  GLUON_CHECK(options.context >= 1, "TokenDataset: context must be >= 1, got ", options.context);
  GLUON_CHECK(options.vocabulary >= 0, "TokenDataset: vocabulary must be >= 1, or 0 to derive it from the data, got ",
              options.vocabulary);
  GLUON_CHECK(options.validation_tokens >= 0, "TokenDataset: validation_tokens must be >= 0, got ",
              options.validation_tokens);
  if (!options.validation.empty()) validation_ = TokenStream::from_files(options.validation, tokenizer);
  GLUON_CHECK(!validation_ || validation_->kind() == training_.kind(), "'", training_.source(), "' holds ",
              training_.kind(), " and '", options.validation, "' ", validation_ ? validation_->kind() : "",
              "; expected one kind for training and validation");
  if (options_.vocabulary == 0) {
    options_.vocabulary = std::max(training_.vocabulary(), validation_ ? validation_->vocabulary() : 0);
  }
  training_.check_tokens(options_.vocabulary);
  train_windows_ = windows_of(training_, validation_ ? 1 : 2);
  if (validation_) {
    validation_->check_tokens(options_.vocabulary);
    validation_windows_ = windows_of(*validation_, 1);
    if (options.validation_tokens > 0) validation_windows_ = windows_asked_for(validation_windows_, *validation_);
    return;
  }
  const auto share = static_cast<int64_t>(static_cast<double>(train_windows_) * kValidationShare);
  validation_windows_ = options.validation_tokens > 0 ? windows_asked_for(train_windows_ - 1, training_)
                                                      : std::clamp<int64_t>(share, 1, kValidationWindows);
  train_windows_ -= validation_windows_;
}

int64_t TokenDataset::windows_of(const TokenStream& stream, int64_t needed) const {
  const int64_t count = (stream.size() - 1) / options_.context;
  GLUON_CHECK(count >= needed, "'", stream.source(), "' is too short: ", stream.size(), " ", stream.kind(), ", ",
              needed == 1 ? "a window of context " : "two windows of context ", options_.context,
              needed == 1 ? " needs at least " : " need at least ", needed * options_.context + 1);
  return count;
}

int64_t TokenDataset::windows_asked_for(int64_t available, const TokenStream& stream) const {
  const int64_t asked = (options_.validation_tokens - 1) / options_.context + 1;
  GLUON_CHECK(asked <= available, "'", stream.source(), "' has ", available * options_.context, " ", stream.kind(),
              " for validation in windows of ", options_.context, ", --val-tokens asks for ",
              options_.validation_tokens);
  return asked;
}

TokenDataset TokenDataset::from_files(const std::string& pattern, const TokenOptions& options,
                                      const Tokenizer* tokenizer) {
  return {TokenStream::from_files(pattern, tokenizer), options, tokenizer};
}

TokenDataset TokenDataset::from_text(std::string_view text, const std::string& name, const TokenOptions& options,
                                     const Tokenizer* tokenizer) {
  return {TokenStream::from_text(text, name, tokenizer), options, tokenizer};
}

Batch TokenDataset::windows(const TokenStream& stream, const std::vector<int64_t>& numbers) const {
  const int64_t context = options_.context;
  const auto size = static_cast<int64_t>(numbers.size());
  const at::Tensor inputs = at::empty({size, context}, at::kLong);
  const at::Tensor targets = at::empty({size, context}, at::kLong);
  int64_t* const input = inputs.data_ptr<int64_t>();
  int64_t* const target = targets.data_ptr<int64_t>();
  for (int64_t i = 0; i < size; ++i) {
    stream.copy(numbers[i] * context, context, input + i * context);
    stream.copy(numbers[i] * context + 1, context, target + i * context);
  }
  return {inputs, targets};
}

Batch TokenDataset::train_batch(int64_t index, int64_t size) const {
  GLUON_CHECK(index >= 0 && size >= 1 && index < std::numeric_limits<int64_t>::max() / size - 1,
              "TokenDataset: expected batch index >= 0 and size >= 1, got index ", index, " and size ", size);
  std::vector<int64_t> numbers;
  numbers.reserve(size);
  for (int64_t i = index * size; i < (index + 1) * size; ++i) {
    const auto epoch = static_cast<uint64_t>(i / train_windows_);
    numbers.push_back(permuted(i % train_windows_, train_windows_, mixed_bits(options_.seed, kOrderStream, epoch)));
  }
  return windows(training_, numbers);
}

std::vector<Batch> TokenDataset::validation(int64_t size) const {
  GLUON_CHECK(size >= 1, "TokenDataset: expected validation batches of size >= 1, got ", size);
  std::vector<Batch> batches;
  const int64_t begin = validation_ ? 0 : train_windows_, end = begin + validation_windows_;
  for (int64_t first = begin; first < end; first += size) {
    std::vector<int64_t> numbers;
    for (int64_t i = first; i < std::min(first + size, end); ++i) numbers.push_back(i);
    batches.push_back(windows(validation_ ? *validation_ : training_, numbers));
  }
  return batches;
}

std::string TokenDataset::describe() const {
  const std::string training = join(training_.describe(), ", vocabulary ", options_.vocabulary, ", ", train_windows_);
  if (!validation_) {
    return join(training, " training and ", validation_windows_, " validation windows of ", options_.context);
  }
  return join(training, " training windows of ", options_.context, "; validation on ", validation_->describe(), ", ",
              validation_windows_, " windows");
}

}  // namespace gluon::lab
