#include "lab/data/token_stream.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <utility>

#include "gluon/core/check.h"
#include "lab/data/input_file.h"

namespace gluon::lab {
namespace {

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

TokenStream TokenStream::from_files(const std::string& pattern, const Tokenizer* tokenizer) {
  TokenStream stream(pattern);
  const auto paths = expand(pattern);
  const bool shards = is_shard(paths.front());
  for (const auto& path : paths) {
    GLUON_CHECK(is_shard(path) == shards, "'", pattern, "' mixes token shards and text: '", paths.front().string(),
                "' and '", path.string(), "'; expected one kind");
    GLUON_CHECK(!path.string().ends_with(".bin.xz"), "'", path.string(),
                "' is compressed; token shards must be unpacked first");
    if (shards) {
      stream.add({.name = path.string(), .encoded = {}, .shard = TokenShard(path)});
    } else {
      stream.add_text(read_file(path), path.string(), tokenizer);
    }
  }
  if (tokenizer != nullptr) stream.vocabulary_ = tokenizer->vocabulary();
  return stream;
}

TokenStream TokenStream::from_text(std::string_view text, const std::string& name, const Tokenizer* tokenizer) {
  TokenStream stream(name);
  stream.add_text(text, name, tokenizer);
  return stream;
}

void TokenStream::add_text(std::string_view text, const std::string& name, const Tokenizer* tokenizer) {
  GLUON_CHECK(!text.empty(), "text '", name, "' is empty");
  if (tokenizer == nullptr) kind_ = "bytes";
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  add({.name = name,
       .encoded = tokenizer == nullptr ? std::vector<uint16_t>(bytes, bytes + text.size())
                                       : tokenizer->encode(text, at::get_num_threads())});
  vocabulary_ = tokenizer == nullptr ? 256 : tokenizer->vocabulary();
}

void TokenStream::add(Part part) {
  part.first = size_;
  size_ += std::ssize(part.tokens());
  vocabulary_ = std::max(vocabulary_, largest(part.tokens()) + 1);
  parts_.push_back(std::move(part));
}

void TokenStream::check_tokens(int64_t vocabulary) const {
  if (vocabulary >= vocabulary_) return;
  for (const Part& part : parts_) {
    const std::span<const uint16_t> tokens = part.tokens();
    const auto bad = std::find_if(tokens.begin(), tokens.end(), [&](uint16_t token) { return token >= vocabulary; });
    GLUON_CHECK(bad == tokens.end(), "'", part.name, "' has token ", *bad, " at position ", bad - tokens.begin(),
                ", the vocabulary allows 0..", vocabulary - 1);
  }
}

void TokenStream::copy(int64_t position, int64_t count, int64_t* out) const {
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

std::string TokenStream::describe() const {
  const std::string files = parts_.size() == 1 ? "" : join(" (", parts_.size(), " files)");
  return join(source_, files, ": ", size_, " ", kind_);
}

}  // namespace gluon::lab
