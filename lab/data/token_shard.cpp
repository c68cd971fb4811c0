#include "lab/data/token_shard.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <string>

#include "gluon/core/check.h"

namespace gluon::lab {
namespace {

static_assert(std::endian::native == std::endian::little, "shards are mapped as they lie on disk");

using Header = std::array<int32_t, TokenShard::kHeaderBytes / sizeof(int32_t)>;

/// A file that is removed again unless it is renamed to its final name.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::filesystem::path& target)
      : target_(target), path_(target.string() + join(".tmp", getpid())) {
    descriptor_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    check(descriptor_ >= 0);
  }

  ~TemporaryFile() {
    if (descriptor_ >= 0) {
      close(descriptor_);
      unlink(path_.c_str());
    }
  }

  void append(const void* data, std::size_t size) {
    const char* next = static_cast<const char*>(data);
    while (size > 0) {
      const ssize_t written = write(descriptor_, next, size);
      if (written < 0 && errno == EINTR) continue;
      check(written > 0);
      next += written;
      size -= static_cast<std::size_t>(written);
    }
  }

  void rename_to_target() {
    check(fsync(descriptor_) == 0);
    check(rename(path_.c_str(), target_.c_str()) == 0);
    close(descriptor_);
    descriptor_ = -1;
    // The new name itself is safe only once the folder is on disk; some file systems cannot, which loses nothing.
    const std::filesystem::path folder = target_.has_parent_path() ? target_.parent_path() : ".";
    const int directory = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory >= 0) {
      fsync(directory);
      close(directory);
    }
  }

 private:
  void check(bool success) const {
    GLUON_CHECK(success, "cannot write token shard '", target_.string(), "': ", std::strerror(errno));
  }

  std::filesystem::path target_;
  std::string path_;
  int descriptor_ = -1;
};

}  // namespace

bool TokenShard::recognizes(std::string_view bytes) {
  int32_t magic = 0;
  if (bytes.size() < sizeof magic) return false;
  std::memcpy(&magic, bytes.data(), sizeof magic);
  return magic == kMagic;
}

TokenShard::TokenShard(const std::filesystem::path& path) : path_(path), file_(path) {
  const std::string_view bytes = file_.bytes();
  const auto size = static_cast<int64_t>(bytes.size());
  GLUON_CHECK(size > 0, "token shard '", path.string(), "' is empty");
  GLUON_CHECK(recognizes(bytes), "'", path.string(),
              "' is not a token shard: it does not start with the number ", kMagic);
  GLUON_CHECK(size >= kHeaderBytes, "token shard '", path.string(), "' is truncated: ", size,
              " bytes, its header alone takes ", kHeaderBytes);
  Header header;
  std::memcpy(header.data(), bytes.data(), sizeof header);
  const int32_t version = header[1];
  const int64_t count = header[2];
  GLUON_CHECK(version == kVersion, "token shard '", path.string(), "' has version ", version, ", expected ",
              kVersion);
  GLUON_CHECK(count > 0, "token shard '", path.string(), "' holds no tokens: its header counts ", count);
  const int64_t expected = kHeaderBytes + count * static_cast<int64_t>(sizeof(uint16_t));
  GLUON_CHECK(size == expected, "token shard '", path.string(), "' is ",
              size < expected ? "truncated" : "too long", ": ", size, " bytes, its header promises ", count,
              " tokens, which take ", expected);
  tokens_ = {reinterpret_cast<const uint16_t*>(bytes.data() + kHeaderBytes), static_cast<std::size_t>(count)};
}

void write_token_shard(const std::filesystem::path& path, std::span<const uint16_t> tokens) {
  GLUON_CHECK(!tokens.empty(), "token shard '", path.string(), "' needs at least one token, got none");
  GLUON_CHECK(tokens.size() <= std::numeric_limits<int32_t>::max(), "token shard '", path.string(),
              "' can hold at most ", std::numeric_limits<int32_t>::max(), " tokens, got ", tokens.size());
  Header header{};
  header[0] = TokenShard::kMagic;
  header[1] = TokenShard::kVersion;
  header[2] = static_cast<int32_t>(tokens.size());
  TemporaryFile file(path);
  file.append(header.data(), sizeof header);
  file.append(tokens.data(), tokens.size_bytes());
  file.rename_to_target();
}

}  // namespace gluon::lab
