#include "lab/data/token_dataset.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "gluon/core/check.h"
#include "lab/data/input_file.h"
#include "lab/data/permutation.h"

namespace gluon::lab {
namespace {

constexpr uint64_t kOrderStream = 1;  // of mixed_bits: the order of an epoch
constexpr double kValidationShare = 0.1;
constexpr int64_t kValidationWindows = 64;

/// Largest token; in blocks of fixed length, which compilers vectorize.
int64_t largest(std::span<const uint16_t> tokens) {
  constexpr std::size_t kBlock = 1024;
  uint16_t top = 0;
  for (; tokens.size() >= kBlock; tokens = tokens.subspan(kBlock)) {
    for (std::size_t i = 0; i < kBlock; ++i) top = std::max(top, tokens[i]);
  }
  for (const uint16_t token : tokens) top = std::max(top, token);
  return top;
}

bool is_shard(const std::filesystem::path& path) {
  return path.extension() == ".bin" || TokenShard::recognizes(MappedFile(path).bytes());
}

}  // namespace

TokenDataset::TokenDataset(const TokenOptions& options) : options_(options) {
  GLUON_CHECK(options.context >= 1, "TokenDataset: context must be >= 1, got ", options.context);
  GLUON_CHECK(options.vocabulary >= 0, "TokenDataset: vocabulary must be >= 1, or 0 to derive it from the data, got ",
              options.vocabulary);
}

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
      data.add({.name = path.string(), .encoded = {}, .shard = TokenShard(path)});
    } else {
      data.add_text(read_file(path), path.string(), tokenizer);
    }
  }
  data.finish(pattern);
  return data;
}

TokenDataset TokenDataset::from_text(std::string_view text, const std::string& name, const TokenOptions& options,
                                     const Tokenizer* tokenizer) {
  TokenDataset data(options);
  data.add_text(text, name, tokenizer);
  data.finish(name);
  return data;
}

void TokenDataset::add_text(std::string_view text, const std::string& name, const Tokenizer* tokenizer) {
  GLUON_CHECK(!text.empty(), "text '", name, "' is empty");
  if (tokenizer == nullptr) kind_ = "bytes";
  if (options_.vocabulary == 0) options_.vocabulary = tokenizer == nullptr ? 256 : tokenizer->vocabulary();
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  add({.name = name,
       .encoded = tokenizer == nullptr ? std::vector<uint16_t>(bytes, bytes + text.size())
                                       : tokenizer->encode(text, at::get_num_threads())});
}

void TokenDataset::add(Part part) {
  part.first = tokens_;
  tokens_ += std::ssize(part.tokens());
  parts_.push_back(std::move(part));
}

void TokenDataset::finish(const std::string& source) {
  source_ = source;
  const bool derive = options_.vocabulary == 0;
  for (const Part& part : parts_) {
    const std::span<const uint16_t> tokens = part.tokens();
    const int64_t top = largest(tokens);
    if (derive) options_.vocabulary = std::max(options_.vocabulary, top + 1);
    if (top < options_.vocabulary) continue;
    const auto bad =
        std::find_if(tokens.begin(), tokens.end(), [&](uint16_t token) { return token >= options_.vocabulary; });
    throw InputError(join("'", part.name, "' has token ", *bad, " at position ", bad - tokens.begin(),
                          ", the vocabulary allows 0..", options_.vocabulary - 1));
  }
  const int64_t context = options_.context;
  const int64_t count = (tokens_ - 1) / context;
  GLUON_CHECK(count >= 2, "'", source, "' is too short: ", tokens_, " ", kind_, ", two windows of context ", context,
              " need at least ", 2 * context + 1);
  const auto share = static_cast<int64_t>(static_cast<double>(count) * kValidationShare);
  validation_windows_ = std::clamp<int64_t>(share, 1, kValidationWindows);
  train_windows_ = count - validation_windows_;
}

void TokenDataset::copy(int64_t position, int64_t count, int64_t* out) const {
  auto part = std::upper_bound(parts_.begin(), parts_.end(), position,
                               [](int64_t value, const Part& candidate) { return value < candidate.first; });
  for (--part; count > 0; ++part) {
    const std::span<const uint16_t> tokens = part->tokens().subspan(position - part->first);
    const int64_t here = std::min(count, std::ssize(tokens));
    out = std::copy_n(tokens.begin(), here, out);
    position += here;
    count -= here;
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
