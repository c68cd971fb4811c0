// Token shards: the public FineWeb `.bin` format of llm.c and modded-nanogpt. Little-endian:
//
//   bytes 0..1023    256 x int32: magic 20240520, version 1, token count, then zeros
//   bytes 1024..     token count x uint16
//
// A shard stays on the disk: opening a large one takes no time, and what is needed is read from the file each time.

#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "lab/data/input_file.h"

namespace gluon::lab {

class TokenShard {
 public:
  static constexpr int32_t kMagic = 20240520;
  static constexpr int32_t kVersion = 1;
  static constexpr int64_t kHeaderBytes = 1024;

  /// Opens and checks the header and the size. Throws InputError on a truncated or empty file or another format.
  explicit TokenShard(const std::filesystem::path& path);

  int64_t size() const { return size_; }  // in tokens

  /// The tokens from `position` on, as many as `out` has. Throws InputError when the file has been cut.
  void read(int64_t position, std::span<uint16_t> out) const;

  /// Whether the file starts with the magic number. Throws InputError when it cannot be read.
  static bool recognizes(const InputFile& file);

 private:
  InputFile file_;
  int64_t size_ = 0;
};

/// Writes a shard atomically: `path` gets all of it or stays as it was. Throws InputError on no tokens, on more than
/// 2^31 - 1, and when the file cannot be written.
void write_token_shard(const std::filesystem::path& path, std::span<const uint16_t> tokens);

}  // namespace gluon::lab
