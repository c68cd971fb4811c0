// A reader of event files, written from the formats' own definitions; of lab/train/event_file.cpp it uses the CRC
// alone, which is compared with known values.

#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "lab/train/event_file.h"

namespace gluon::lab {

struct ReadEvent {
  double wall_time = 0;
  int64_t step = 0;
  std::string version;
  std::map<std::string, float> scalars;
};

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}

  bool empty() const { return bytes_.empty(); }

  std::string_view take(uint64_t count) {
    if (count > bytes_.size()) throw std::runtime_error("events: cut off");
    const std::string_view part = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return part;
  }

  template <typename T> T fixed() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }

  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    throw std::runtime_error("events: a varint without end");
  }

  std::string_view counted() { return take(varint()); }

 private:
  std::string_view bytes_;
};

/// Reads the masked checksum that follows `bytes`.
inline void check_crc(ByteReader& file, std::string_view bytes) {
  const uint32_t rotated = file.fixed<uint32_t>() - 0xa282ead8u;
  if (((rotated >> 17) | (rotated << 15)) != crc32c(bytes)) throw std::runtime_error("events: wrong checksum");
}

/// Keys are (number << 3) | wire type.
inline ReadEvent read_event(ByteReader event) {
  ReadEvent read;
  while (!event.empty()) {
    switch (event.varint()) {
      case 1 << 3 | 1: read.wall_time = event.fixed<double>(); break;
      case 2 << 3 | 0: read.step = static_cast<int64_t>(event.varint()); break;
      case 3 << 3 | 2: read.version = event.counted(); break;
      case 5 << 3 | 2:
        for (ByteReader summary(event.counted()); !summary.empty();) {
          if (summary.varint() != (1 << 3 | 2)) throw std::runtime_error("events: a summary holds values only");
          ByteReader scalar(summary.counted());
          if (scalar.varint() != (1 << 3 | 2)) throw std::runtime_error("events: a scalar without its tag");
          const std::string tag(scalar.counted());
          if (scalar.varint() != (2 << 3 | 5)) throw std::runtime_error("events: a scalar without its value");
          read.scalars[tag] = scalar.fixed<float>();
        }
        break;
      default: throw std::runtime_error("events: unknown field");
    }
  }
  return read;
}

/// All events; throws std::runtime_error on a wrong checksum or bytes that are no record.
inline std::vector<ReadEvent> read_events(const std::string& bytes) {
  std::vector<ReadEvent> events;
  for (ByteReader file(bytes); !file.empty();) {
    const std::string_view length = file.take(8);
    check_crc(file, length);
    const std::string_view event = file.take(ByteReader(length).fixed<uint64_t>());
    check_crc(file, event);
    events.push_back(read_event(ByteReader(event)));
  }
  return events;
}

}  // namespace gluon::lab
