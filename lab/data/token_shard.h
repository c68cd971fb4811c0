// Token shards: the public FineWeb `.bin` format of llm.c and modded-nanogpt. Little-endian:
//
//   bytes 0..1023    256 x int32: magic 20240520, version 1, token count, then zeros
//   bytes 1024..     token count x uint16
//
// A shard is mapped, not read: opening one of 200 MB takes no time, pages are loaded when touched.

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

  /// Opens and checks the header and the size. Throws InputError on a foreign, truncated or empty file.
  explicit TokenShard(const std::filesystem::path& path);

  /// Valid as long as the shard lives.
  std::span<const uint16_t> tokens() const { return tokens_; }
  const std::filesystem::path& path() const { return path_; }

  /// Whether `bytes`, the beginning of a file, carry the magic number.
  static bool recognizes(std::string_view bytes);

 private:
  std::filesystem::path path_;
  MappedFile file_;
  std::span<const uint16_t> tokens_;
};

/// Writes a shard so that `path` holds all of it or is left as it was: temporary file beside it, fsync, rename.
/// Throws InputError on no tokens, on more than 2^31 - 1, and when the disk refuses.
void write_token_shard(const std::filesystem::path& path, std::span<const uint16_t> tokens);

}  // namespace gluon::lab
