#include "lab/data/token_shard.h"

#include <array>
#include <bit>
#include <limits>
#include <string>

#include "gluon/core/atomic_file.h"
#include "gluon/core/check.h"

namespace gluon::lab {
namespace {

static_assert(std::endian::native == std::endian::little, "shards on disk are little-endian");

using Header = std::array<int32_t, TokenShard::kHeaderBytes / sizeof(int32_t)>;

}  // namespace

bool TokenShard::recognizes(const InputFile& file) {
  int32_t magic = 0;
  if (file.size() < static_cast<int64_t>(sizeof magic)) return false;
  file.read(0, &magic, sizeof magic);
  return magic == kMagic;
}

TokenShard::TokenShard(const std::filesystem::path& path) : file_(path) {
  const int64_t size = file_.size();
  GLUON_CHECK(size > 0, "token shard '", path.string(), "' is empty");
  GLUON_CHECK(recognizes(file_), "'", path.string(), "' is not a token shard: it does not start with the number ",
              kMagic);
  GLUON_CHECK(size >= kHeaderBytes, "token shard '", path.string(), "' is truncated: ", size,
              " bytes, its header alone takes ", kHeaderBytes);
  Header header;
  file_.read(0, header.data(), sizeof header);
  const int32_t version = header[1];
  const int64_t count = header[2];
  GLUON_CHECK(version == kVersion, "token shard '", path.string(), "' has version ", version, ", expected ", kVersion);
  GLUON_CHECK(count > 0, "token shard '", path.string(), "' has no tokens: its header counts ", count);
  const int64_t expected = kHeaderBytes + count * static_cast<int64_t>(sizeof(uint16_t));
  GLUON_CHECK(size == expected, "token shard '", path.string(), "' is ", size < expected ? "truncated" : "too long",
              ": ", size, " bytes, its header promises ", count, " tokens, which take ", expected);
  size_ = count;
}

void TokenShard::read(int64_t position, std::span<uint16_t> out) const {
  file_.read(kHeaderBytes + position * static_cast<int64_t>(sizeof(uint16_t)), out.data(), out.size_bytes());
}

void write_token_shard(const std::filesystem::path& path, std::span<const uint16_t> tokens) {
  GLUON_CHECK(!tokens.empty(), "token shard '", path.string(), "' needs at least one token, got none");
  GLUON_CHECK(tokens.size() <= std::numeric_limits<int32_t>::max(), "token shard '", path.string(),
              "' can hold at most ", std::numeric_limits<int32_t>::max(), " tokens, got ", tokens.size());
  Header header{};
  header[0] = TokenShard::kMagic;
  header[1] = TokenShard::kVersion;
  header[2] = static_cast<int32_t>(tokens.size());
  AtomicFile file(path, join("cannot write token shard '", path.string(), "': "));
  file.append(header.data(), sizeof header);
  file.append(tokens.data(), tokens.size_bytes());
  file.commit();
}

}  // namespace gluon::lab
