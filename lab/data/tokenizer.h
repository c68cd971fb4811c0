// GPT-2's byte-pair encoding, from the public files encoder.json and vocab.bpe.
//
// Text is cut into documents, documents into words, and the bytes of a word are merged pair by pair, the pair of
// lowest rank in vocab.bpe first, until no pair of neighbours has a rank. Words are what GPT-2's expression finds:
//
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// Bytes that are not UTF-8 match nothing; each run of them is a word. decode(encode(x)) == x for every
// sequence of bytes x, valid UTF-8 or not.
//
// Documents: a line that is exactly `<|endoftext|>`, from the start of the text or after a newline up to and
// including its own newline, is one token, 50256 for GPT-2; decode writes it as the same 14 bytes. The same
// characters anywhere else, also in a last line without newline, are ordinary text.
//
// No word extends across a blank that follows an ASCII letter, digit or sign. The encoder cuts the text
// into pieces at such blanks and works on them with any number of threads, with the same result.

#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gluon::lab {

class Tokenizer {
 public:
  /// The line that separates documents, without its newline.
  static constexpr std::string_view kSeparator = "<|endoftext|>";

  /// Reads encoder.json and vocab.bpe from `folder`. Throws InputError when one is missing, is not JSON, has ids
  /// other than 0..n-1 (n <= 65536), lacks one of the 256 bytes or the separator, or merges a pair twice or before its
  /// parts, or makes fewer tokens by merging than encoder.json names.
  explicit Tokenizer(const std::filesystem::path& folder);

  /// Called after each piece with the number of bytes encoded so far, by one thread at a time. An exception stops
  /// the encoding and is rethrown to the caller.
  using Progress = std::function<void(int64_t bytes)>;

  /// The tokens of any bytes, encoded by `threads` threads (>= 1). Thread-safe.
  std::vector<uint16_t> encode(std::string_view text, int threads = 1, const Progress& progress = nullptr) const;

  /// The bytes of the tokens. Throws InputError on a token >= vocabulary().
  std::string decode(std::span<const uint16_t> tokens) const;

  /// Number of tokens: 50257 for GPT-2.
  int64_t vocabulary() const;

 private:
  struct Tables;
  class Encoder;
  std::shared_ptr<const Tables> tables_;
};

}  // namespace gluon::lab
