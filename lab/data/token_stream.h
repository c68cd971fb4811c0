// TokenStream: the tokens of one or several files, one after another.
//
// Sources: token shards (read where needed, token_shard.h), or text (also .xz), as bytes or encoded by a Tokenizer.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lab/data/token_shard.h"
#include "lab/data/tokenizer.h"

namespace gluon::lab {

class TokenStream {
 public:
  /// Files by name, folder or pattern (expand()): token shards or text. Without a tokenizer text is read as bytes.
  /// Throws InputError on files that cannot be read, an empty text, and a mixture of shards and text.
  static TokenStream from_files(const std::string& pattern, const Tokenizer* tokenizer);

  /// A text in memory; errors and descriptions call it `name`.
  static TokenStream from_text(std::string_view text, const std::string& name, const Tokenizer* tokenizer);

  int64_t size() const { return size_; }

  /// The vocabulary of the source: the tokenizer's, 256 for bytes, the largest token + 1 for shards.
  int64_t vocabulary() const { return vocabulary_; }

  /// Throws InputError, naming the file and the position, unless all tokens are < vocabulary.
  void check_tokens(int64_t vocabulary) const;

  /// Writes the tokens at [position, position + count) to `out`. Throws InputError when a file has been cut.
  void copy(int64_t position, int64_t count, int64_t* out) const;

  const std::string& source() const { return source_; }
  const std::string& kind() const { return kind_; }  // "bytes" or "tokens"

  /// "corpus/*.bin (3 files): 313 tokens"
  std::string describe() const;

 private:
  /// One file, as tokens in memory or as a shard.
  struct Part {
    std::string name;
    std::vector<uint16_t> encoded;
    std::optional<TokenShard> shard;
    int64_t first = 0;  // position in the stream
    int64_t size() const { return shard ? shard->size() : std::ssize(encoded); }
    void read(int64_t position, std::span<uint16_t> out) const;
    template <typename Visit> void blocks(Visit visit) const;
  };

  explicit TokenStream(std::string source) : source_(std::move(source)) {}
  void add_text(std::string_view text, const std::string& name, const Tokenizer* tokenizer);
  void add(Part part);

  std::string source_;
  std::string kind_ = "tokens";
  std::vector<Part> parts_;
  int64_t size_ = 0;
  int64_t vocabulary_ = 0;
};

}  // namespace gluon::lab
