// GPT-2's byte-pair encoding, from the public files encoder.json and vocab.bpe.
//
// Text is cut into documents, documents into words, and the bytes of a word are merged pair by pair, the pair of
// lowest rank in vocab.bpe first, until no pair of neighbours has a rank. Words are what GPT-2's expression finds:
//
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// Bytes that are not UTF-8 match nothing; each run of them is a word of its own. decode(encode(x)) == x for every
// sequence of bytes x, valid UTF-8 or not.
//
// Documents: a line that is exactly `<|endoftext|>`, from the start of the text or after a newline up to and
// including its own newline, is the one token end_of_text(); decode writes it as the same 14 bytes. The same
// letters anywhere else, also as an unfinished last line, are ordinary text.
//
// Cutting rule: no word of the expression goes on over a blank that follows an ASCII letter, digit or sign. The
// encoder therefore works on pieces that end there, on any number of threads, with the same result.

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

  /// Reads encoder.json and vocab.bpe from `folder`. Throws InputError when one is missing, no JSON, has ids other
  /// than 0..n-1 (n <= 65536), lacks one of the 256 bytes or the separator, or merges a pair
  /// twice or before its parts.
  explicit Tokenizer(const std::filesystem::path& folder);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  /// Tokens of any bytes. Safe to call from several threads.
  std::vector<uint16_t> encode(std::string_view text) const;

  /// Called after each piece with the bytes encoded so far; from one worker at a time, not
  /// from the caller's thread. What it throws ends the work and is thrown on.
  using Progress = std::function<void(int64_t bytes)>;

  /// The same tokens as encode(), made by `threads` threads (>= 1).
  std::vector<uint16_t> encode_parallel(std::string_view text, int threads,
                                        const Progress& progress = nullptr) const;

  /// The bytes that the tokens stand for. Throws InputError on a token >= vocabulary().
  std::string decode(std::span<const uint16_t> tokens) const;

  /// Number of tokens: 50257 for GPT-2.
  int64_t vocabulary() const;

  /// The token between documents: 50256 for GPT-2.
  uint16_t end_of_text() const;

 private:
  struct Tables;
  class Encoder;
  std::unique_ptr<const Tables> tables_;
};

}  // namespace gluon::lab
