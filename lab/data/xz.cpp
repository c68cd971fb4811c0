#include "lab/data/input_file.h"

#include <lzma.h>

#include <algorithm>
#include <cstdint>

#include "gluon/core/check.h"

namespace gluon::lab {
namespace {

std::string_view lzma_problem(lzma_ret code) {
  switch (code) {
    case LZMA_FORMAT_ERROR: return "is not in the xz format";
    case LZMA_BUF_ERROR: return "is truncated: its xz data ends too early";
    case LZMA_MEM_ERROR: return "needs more memory to unpack than available";
    case LZMA_OPTIONS_ERROR: return "uses an xz option that this liblzma does not know";
    default: return "is corrupt: its xz data does not unpack";
  }
}

}  // namespace

std::string unpacked_xz(std::string_view packed, const std::filesystem::path& path) {
  // liblzma reports a file shorter than its header as truncated, even if it is not xz.
  constexpr std::string_view kMagic(
      "\xfd"
      "7zXZ\0",
      6);
  const bool xz = packed.substr(0, kMagic.size()) == kMagic.substr(0, packed.size());
  GLUON_CHECK(xz, "file '", path.string(), "' ", lzma_problem(LZMA_FORMAT_ERROR));

  lzma_stream stream = LZMA_STREAM_INIT;
  lzma_ret code = lzma_stream_decoder(&stream, UINT64_MAX, LZMA_CONCATENATED);
  const std::unique_ptr<lzma_stream, void (*)(lzma_stream*)> end(&stream, lzma_end);
  GLUON_CHECK(code == LZMA_OK, "file '", path.string(), "' ", lzma_problem(code));

  std::string text;
  stream.next_in = reinterpret_cast<const uint8_t*>(packed.data());
  stream.avail_in = packed.size();
  while (code == LZMA_OK) {
    const std::size_t filled = text.size();
    text.resize(std::max<std::size_t>(filled * 2, std::size_t{1} << 16));
    stream.next_out = reinterpret_cast<uint8_t*>(text.data()) + filled;
    stream.avail_out = text.size() - filled;
    code = lzma_code(&stream, LZMA_FINISH);
    text.resize(text.size() - stream.avail_out);
  }
  GLUON_CHECK(code == LZMA_STREAM_END, "file '", path.string(), "' ", lzma_problem(code));
  return text;
}

}  // namespace gluon::lab
