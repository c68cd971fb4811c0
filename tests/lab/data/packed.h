// xz data for tests.

#pragma once

#include <gtest/gtest.h>
#include <lzma.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace gluon::lab {

/// One xz stream.
inline std::string packed(std::string_view bytes) {
  std::string out(lzma_stream_buffer_bound(bytes.size()), '\0');
  size_t size = 0;
  const lzma_ret code =
      lzma_easy_buffer_encode(1, LZMA_CHECK_CRC64, nullptr, reinterpret_cast<const uint8_t*>(bytes.data()),
                              bytes.size(), reinterpret_cast<uint8_t*>(out.data()), &size, out.size());
  EXPECT_EQ(code, LZMA_OK);
  out.resize(size);
  return out;
}

}  // namespace gluon::lab
