#include "lab/data/token_dataset.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "gluon/core/check.h"
#include "gluon/core/spec.h"
#include "lab/data/input_file.h"
#include "lab/data/permutation.h"

namespace gluon::lab {
namespace {

constexpr uint64_t kOrderStream = 1;  // of mixed_bits: the order of an epoch

/// Largest value; in blocks of fixed length, which compilers vectorize.
template <typename Value> Value largest(const Value* values, int64_t count) {
  constexpr int64_t kBlock = 1024;
  Value top = 0;
  int64_t i = 0;
  for (; i + kBlock <= count; i += kBlock) {
    for (int64_t j = 0; j < kBlock; ++j) top = std::max(top, values[i + j]);
  }
  for (; i < count; ++i) top = std::max(top, values[i]);
  return top;
}

const uint8_t* unsigned_bytes(const std::string& text) { return reinterpret_cast<const uint8_t*>(text.data()); }

bool is_shard(const std::filesystem::path& path) {
  return path.extension() == ".bin" || TokenShard::recognizes(MappedFile(path).bytes());
}

double entropy(const std::vector<Batch>& batches, int64_t classes) {
  at::Tensor counts = at::zeros({classes}, at::kDouble);
  for (const Batch& batch : batches) counts += at::bincount(batch.targets.flatten(), {}, classes);
  const at::Tensor share = counts / counts.sum();
  return -at::xlogy(share, share).sum().item<double>();
}

}  // namespace

void TokenOptions::validate() const {
  GLUON_CHECK(context >= 1, "TokenDataset: context must be >= 1, got ", context);
  GLUON_CHECK(validation_share > 0 && validation_share < 1, "TokenDataset: validation share must be in (0, 1), got ",
              number_text(validation_share));
  GLUON_CHECK(validation_windows >= 1, "TokenDataset: validation windows must be >= 1, got ", validation_windows);
  GLUON_CHECK(vocabulary >= 0, "TokenDataset: vocabulary must be >= 1, or 0 to derive it from the data, got ",
              vocabulary);
  GLUON_CHECK(threads >= 1, "TokenDataset: threads must be >= 1, got ", threads);
}

const uint16_t* TokenDataset::Part::tokens() const {
  if (shard) return shard->tokens().data();
  return encoded.empty() ? nullptr : encoded.data();
}

TokenDataset::TokenDataset(const TokenOptions& options) : options_(options) { options_.validate(); }

TokenDataset TokenDataset::from_files(const std::string& pattern, const TokenOptions& options,
                                      const Tokenizer* tokenizer) {
  TokenDataset data(options);
  if (options.vocabulary == 0 && tokenizer != nullptr) data.options_.vocabulary = tokenizer->vocabulary();
  const auto paths = expand(pattern);
  const bool shards = is_shard(paths.front());
  for (const auto& path : paths) {
    GLUON_CHECK(is_shard(path) == shards, "'", pattern, "' mixes token shards and text: '", paths.front().string(),
                "' and '", path.string(), "'; expected one kind");
    GLUON_CHECK(!path.string().ends_with(".bin.xz"), "'", path.string(),
                "' is compressed; token shards must be unpacked first");
    if (shards) {
      data.add_shard(path);
    } else {
      data.add_text(read_file(path), path.string(), tokenizer);
    }
  }
  data.finish(pattern);
  return data;
}

TokenDataset TokenDataset::from_text(std::string text, const std::string& name, const TokenOptions& options,
                                     const Tokenizer* tokenizer) {
  TokenDataset data(options);
  data.add_text(std::move(text), name, tokenizer);
  data.finish(name);
  return data;
}

void TokenDataset::add_text(std::string text, const std::string& name, const Tokenizer* tokenizer) {
  GLUON_CHECK(!text.empty(), "text '", name, "' is empty");
  kind_ = tokenizer == nullptr ? "bytes" : "tokens";
  const int64_t own = tokenizer == nullptr ? 256 : tokenizer->vocabulary();
  if (options_.vocabulary == 0) options_.vocabulary = own;
  Part part{.name = name};
  if (tokenizer == nullptr) {
    part.bytes = std::move(text);
    part.count = static_cast<int64_t>(part.bytes.size());
  } else {
    part.encoded = tokenizer->encode_parallel(text, options_.threads);
    part.count = static_cast<int64_t>(part.encoded.size());
  }
  add(std::move(part));
}

void TokenDataset::add_shard(const std::filesystem::path& path) {
  kind_ = "tokens";
  Part part{.name = path.string()};
  part.shard.emplace(path);
  part.count = static_cast<int64_t>(part.shard->tokens().size());
  add(std::move(part));
}

void TokenDataset::add(Part part) {
  part.first = tokens_;
  tokens_ += part.count;
  parts_.push_back(std::move(part));
}

void TokenDataset::finish(const std::string& source) {
  source_ = source;
  if (options_.vocabulary == 0) {
    for (const Part& part : parts_) {
      options_.vocabulary = std::max<int64_t>(options_.vocabulary, largest(part.tokens(), part.count) + 1);
    }
  } else {
    for (const Part& part : parts_) check_tokens(part);
  }
  const int64_t context = options_.context;
  const int64_t count = (tokens_ - 1) / context;
  GLUON_CHECK(count >= 2, "'", source, "' is too short: ", tokens_, " ", kind_, ", two windows of context ", context,
              " need at least ", 2 * context + 1);
  const auto share = static_cast<int64_t>(static_cast<double>(count) * options_.validation_share);
  validation_windows_ = std::clamp<int64_t>(share, 1, std::min(options_.validation_windows, count - 1));
  train_windows_ = count - validation_windows_;
  unigram_entropy_ = entropy(validation(16), options_.vocabulary);
}

void TokenDataset::check_tokens(const Part& part) const {
  const auto reject_first = [&](const auto* values) {
    const auto* const bad =
        std::find_if(values, values + part.count, [&](auto value) { return value >= options_.vocabulary; });
    if (bad == values + part.count) return;
    throw InputError(join("'", part.name, "' has token ", int{*bad}, " at position ", bad - values,
                          ", the vocabulary allows 0..", options_.vocabulary - 1));
  };
  if (const uint16_t* tokens = part.tokens()) {
    if (largest(tokens, part.count) >= options_.vocabulary) reject_first(tokens);
  } else {
    const uint8_t* bytes = unsigned_bytes(part.bytes);
    if (largest(bytes, part.count) >= options_.vocabulary) reject_first(bytes);
  }
}

void TokenDataset::copy(int64_t position, int64_t count, int64_t* out) const {
  auto part = std::upper_bound(parts_.begin(), parts_.end(), position,
                               [](int64_t value, const Part& candidate) { return value < candidate.first; });
  for (--part; count > 0; ++part) {
    const int64_t skip = position - part->first;
    const int64_t here = std::min(count, part->count - skip);
    if (const uint16_t* tokens = part->tokens()) {
      std::copy_n(tokens + skip, here, out);
    } else {
      std::copy_n(unsigned_bytes(part->bytes) + skip, here, out);
    }
    position += here;
    count -= here;
    out += here;
  }
}

Batch TokenDataset::windows(const std::vector<int64_t>& numbers) const {
  const int64_t context = options_.context;
  const auto size = static_cast<int64_t>(numbers.size());
  const at::Tensor inputs = at::empty({size, context}, at::kLong);
  const at::Tensor targets = at::empty({size, context}, at::kLong);
  int64_t* const input = inputs.data_ptr<int64_t>();
  int64_t* const target = targets.data_ptr<int64_t>();
  for (int64_t i = 0; i < size; ++i) {
    copy(numbers[i] * context, context, input + i * context);
    copy(numbers[i] * context + 1, context, target + i * context);
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
  return windows(numbers);
}

std::vector<Batch> TokenDataset::validation(int64_t size) const {
  GLUON_CHECK(size >= 1, "TokenDataset: expected validation batches of size >= 1, got ", size);
  std::vector<Batch> batches;
  const int64_t end = train_windows_ + validation_windows_;
  for (int64_t first = train_windows_; first < end; first += size) {
    std::vector<int64_t> numbers;
    for (int64_t i = first; i < std::min(first + size, end); ++i) numbers.push_back(i);
    batches.push_back(windows(numbers));
  }
  return batches;
}

std::string TokenDataset::describe() const {
  const std::string files = parts_.size() == 1 ? "" : join(" (", parts_.size(), " files)");
  return join(source_, files, ": ", tokens_, " ", kind_, ", vocabulary ", options_.vocabulary, ", ", train_windows_,
              " training and ", validation_windows_, " validation windows of ", options_.context);
}

}  // namespace gluon::lab
