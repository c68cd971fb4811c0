#include "lab/data/token_stream.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <utility>

#include "gluon/core/check.h"
#include "lab/data/input_file.h"

namespace gluon::lab {
namespace {

constexpr int64_t kBlock = 1 << 16;  // tokens read at a time

bool is_shard(const std::filesystem::path& path) {
  return path.extension() == ".bin" || TokenShard::recognizes(InputFile(path));
}

}  // namespace

void TokenStream::Part::read(int64_t position, std::span<uint16_t> out) const {
  if (shard) return shard->read(position, out);
  std::copy_n(encoded.begin() + position, out.size(), out.begin());
}

/// Calls `visit(position, tokens)` with one block of the file after another.
template <typename Visit> void TokenStream::Part::blocks(Visit visit) const {
  std::vector<uint16_t> block(static_cast<std::size_t>(std::min(kBlock, size())));
  for (int64_t position = 0; position < size(); position += kBlock) {
    const auto tokens = std::span(block).first(static_cast<std::size_t>(std::min(kBlock, size() - position)));
    read(position, tokens);
    visit(position, tokens);
  }
}

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
  size_ += part.size();
  part.blocks([&](int64_t, std::span<const uint16_t> tokens) {
    uint16_t largest = 0;
    for (const uint16_t token : tokens) largest = std::max(largest, token);
    vocabulary_ = std::max<int64_t>(vocabulary_, largest + 1);
  });
  parts_.push_back(std::move(part));
}

void TokenStream::check_tokens(int64_t vocabulary) const {
  if (vocabulary >= vocabulary_) return;
  for (const Part& part : parts_) {
    part.blocks([&](int64_t position, std::span<const uint16_t> tokens) {
      const auto bad = std::find_if(tokens.begin(), tokens.end(), [&](uint16_t token) { return token >= vocabulary; });
      GLUON_CHECK(bad == tokens.end(), "'", part.name, "' has token ", *bad, " at position ",
                  position + (bad - tokens.begin()), ", the vocabulary allows 0..", vocabulary - 1);
    });
  }
}

void TokenStream::copy(int64_t position, int64_t count, int64_t* out) const {
  auto part = std::upper_bound(parts_.begin(), parts_.end(), position,
                               [](int64_t value, const Part& candidate) { return value < candidate.first; });
  std::vector<uint16_t> tokens;
  for (--part; count > 0; ++part) {
    const int64_t start = position - part->first, here = std::min(count, part->size() - start);
    tokens.resize(static_cast<std::size_t>(here));
    part->read(start, tokens);
    out = std::copy(tokens.begin(), tokens.end(), out);
    position += here;
    count -= here;
  }
}

std::string TokenStream::describe() const {
  const std::string files = parts_.size() == 1 ? "" : join(" (", parts_.size(), " files)");
  return join(source_, files, ": ", size_, " ", kind_);
}

}  // namespace gluon::lab
