#include <lzma.h>

#include <algorithm>
#include <cstdint>

#include "gluon/core/check.h"
#include "lab/data/input_file.h"

namespace gluon::lab {
namespace {

constexpr std::string_view kMagic(
    "\xfd"
    "7zXZ\0",
    6);
// Of the decoder: xz -9 needs 65 MiB. The dictionary of a hostile file may be 4 GiB.
constexpr uint64_t kDecoderMemory = uint64_t{1} << 29;
constexpr uint64_t kBestRatio = 8192;  // of zeros, about 7000 : 1

std::string_view lzma_problem(lzma_ret code) {
  switch (code) {
    case LZMA_FORMAT_ERROR: return "is not in the xz format";
    case LZMA_BUF_ERROR: return "is truncated: its xz data ends too early";
    case LZMA_MEM_ERROR: return "needs more memory to unpack than available";
    case LZMA_MEMLIMIT_ERROR: return "needs more than 512 MiB to unpack, beside its contents";
    case LZMA_OPTIONS_ERROR: return "uses an xz option that this liblzma does not know";
    default: return "is corrupt: its xz data does not unpack";
  }
}

struct Stream : lzma_stream {
  explicit Stream(std::string_view packed) : lzma_stream(LZMA_STREAM_INIT) { feed(packed); }
  ~Stream() { lzma_end(this); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  void feed(std::string_view packed) {
    next_in = reinterpret_cast<const uint8_t*>(packed.data());
    avail_in = packed.size();
  }
};

// What the index at the end of the file promises; 0 where there is no index that can be read. Only the contents tell
// whether it is true.
uint64_t promised_size(std::string_view packed) {
  lzma_index* index = nullptr;
  Stream stream(packed);
  lzma_ret code = lzma_file_info_decoder(&stream, &index, kDecoderMemory, packed.size());
  while (code == LZMA_OK || code == LZMA_SEEK_NEEDED) {
    code = lzma_code(&stream, LZMA_RUN);
    if (code == LZMA_SEEK_NEEDED) stream.feed(packed.substr(stream.seek_pos));
  }
  if (code != LZMA_STREAM_END) return 0;
  const uint64_t size = lzma_index_uncompressed_size(index);
  lzma_index_end(index, nullptr);
  return size;
}

// Appends the contents of the stream at the front of `packed`, and takes it away.
lzma_ret unpack_stream(std::string_view& packed, std::string& text, uint64_t most) {
  Stream stream(packed);
  lzma_ret code = lzma_stream_decoder(&stream, kDecoderMemory, 0);
  std::string block(std::size_t{1} << 18, '\0');
  while (code == LZMA_OK && text.size() <= most) {
    stream.next_out = reinterpret_cast<uint8_t*>(block.data());
    stream.avail_out = block.size();
    code = lzma_code(&stream, LZMA_FINISH);
    text.append(block, 0, block.size() - stream.avail_out);
  }
  packed.remove_prefix(packed.size() - stream.avail_in);
  return code;
}

// Between streams and at the end there may be zeros, in groups of four.
void skip_padding(std::string_view& packed) {
  const std::size_t zeros = std::min(packed.find_first_not_of('\0'), packed.size());
  if (zeros % 4 == 0) packed.remove_prefix(zeros);
}

}  // namespace

std::string unpacked_xz(std::string_view packed, const std::filesystem::path& path, uint64_t most) {
  const auto check_size = [&](uint64_t size) {
    GLUON_CHECK(size <= most, "file '", path.string(), "' unpacks to at least ", size, " bytes, at most ", most,
                " are read into memory, half of what this machine has; unpack and split it");
  };
  const uint64_t promised = promised_size(packed);
  check_size(promised);
  std::string text;
  text.reserve(std::min<uint64_t>(promised, packed.size() * kBestRatio));
  for (bool first = true; first || !packed.empty(); first = false) {
    // liblzma calls what is shorter than its header truncated, even if it is not xz.
    const bool xz = packed.substr(0, kMagic.size()) == kMagic.substr(0, packed.size());
    GLUON_CHECK(xz || !first, "file '", path.string(), "' ", lzma_problem(LZMA_FORMAT_ERROR));
    GLUON_CHECK(xz, "file '", path.string(), "' has ", packed.size(), " bytes after its xz data that are not xz");
    const lzma_ret code = unpack_stream(packed, text, most);
    check_size(text.size());
    GLUON_CHECK(code == LZMA_STREAM_END, "file '", path.string(), "' ", lzma_problem(code));
    skip_padding(packed);
  }
  return text;
}

}  // namespace gluon::lab
