// A reader of event files, written from the formats' own definitions and not from lab/train/event_file.cpp: the CRC
// goes bit by bit, and unknown fields are stepped over as a protocol buffer reader does.

#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace gluon::lab {

struct ReadEvent {
  double wall_time = 0;
  int64_t step = 0;
  std::string version;
  std::map<std::string, float> scalars;
};

inline std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

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

  void skip(uint64_t wire_type) {
    switch (wire_type) {
      case 0: varint(); break;
      case 1: take(8); break;
      case 2: counted(); break;
      case 5: take(4); break;
      default: throw std::runtime_error("events: unknown wire type");
    }
  }

 private:
  std::string_view bytes_;
};

inline uint32_t unmasked(uint32_t masked) {
  const uint32_t rotated = masked - 0xa282ead8u;
  return (rotated >> 17) | (rotated << 15);
}

inline uint32_t slow_crc32c(std::string_view bytes) {
  uint32_t crc = 0xffffffffu;
  for (const char byte : bytes) {
    for (int bit = 0; bit < 8; ++bit) {
      const bool odd = ((crc ^ (static_cast<unsigned char>(byte) >> bit)) & 1) != 0;
      crc = odd ? (crc >> 1) ^ 0x82f63b78u : crc >> 1;
    }
  }
  return crc ^ 0xffffffffu;
}

inline std::pair<std::string, float> read_scalar(ByteReader value) {
  std::pair<std::string, float> scalar;
  while (!value.empty()) {
    switch (const uint64_t key = value.varint()) {
      case 1 << 3 | 2: scalar.first = value.counted(); break;
      case 2 << 3 | 5: scalar.second = value.fixed<float>(); break;
      default: value.skip(key & 7);
    }
  }
  return scalar;
}

inline ReadEvent read_event(ByteReader event) {
  ReadEvent read;
  while (!event.empty()) {
    switch (const uint64_t key = event.varint()) {
      case 1 << 3 | 1: read.wall_time = event.fixed<double>(); break;
      case 2 << 3 | 0: read.step = static_cast<int64_t>(event.varint()); break;
      case 3 << 3 | 2: read.version = event.counted(); break;
      case 5 << 3 | 2:
        for (ByteReader summary(event.counted()); !summary.empty();) {
          if (summary.varint() != (1 << 3 | 2)) throw std::runtime_error("events: a summary holds values only");
          read.scalars.insert(read_scalar(ByteReader(summary.counted())));
        }
        break;
      default: event.skip(key & 7);
    }
  }
  return read;
}

/// All events; throws std::runtime_error on a wrong checksum or bytes that are no record.
inline std::vector<ReadEvent> read_events(const std::string& bytes) {
  std::vector<ReadEvent> events;
  for (ByteReader file(bytes); !file.empty();) {
    const std::string_view length = file.take(8);
    if (unmasked(file.fixed<uint32_t>()) != slow_crc32c(length))
      throw std::runtime_error("events: wrong checksum of a length");
    const std::string_view event = file.take(ByteReader(length).fixed<uint64_t>());
    if (unmasked(file.fixed<uint32_t>()) != slow_crc32c(event))
      throw std::runtime_error("events: wrong checksum of an event");
    events.push_back(read_event(ByteReader(event)));
  }
  return events;
}

}  // namespace gluon::lab
