// Token shards: the public FineWeb `.bin` format of llm.c and modded-nanogpt. Little-endian:
//
//   bytes 0..1023    256 x int32: magic 20240520, version 1, token count, then zeros
//   bytes 1024..     token count x uint16
//
// A shard is mapped into memory: opening a large one takes no time, pages are loaded on first use.

#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include "lab/data/input_file.h"

namespace gluon::lab {

class TokenShard {
 public:
  static constexpr int32_t kMagic = 20240520;
  static constexpr int32_t kVersion = 1;
  static constexpr int64_t kHeaderBytes = 1024;

  /// Opens and checks the header and the size. Throws InputError on a truncated or empty file or another format.
  explicit TokenShard(const std::filesystem::path& path);

  /// Valid during the life of the shard.
  std::span<const uint16_t> tokens() const { return tokens_; }

  /// Whether `bytes`, the beginning of a file, start with the magic number.
  static bool recognizes(std::string_view bytes);

 private:
  MappedFile file_;
  std::span<const uint16_t> tokens_;
};

/// Writes a shard atomically: `path` gets all of it or stays as it was. Throws InputError on no tokens, on more than
/// 2^31 - 1, and when the file cannot be written.
void write_token_shard(const std::filesystem::path& path, std::span<const uint16_t> tokens);

}  // namespace gluon::lab
