#include "lab/train/event_file.h"

#include <bit>
#include <chrono>

#include "gluon/core/atomic_file.h"
#include "gluon/core/check.h"

namespace gluon::lab {
namespace {

template <typename Integer> std::string little_endian(Integer value) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof value; ++i) bytes += static_cast<char>((value >> (8 * i)) & 0xff);
  return bytes;
}

std::string masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return little_endian(((crc >> 15) | (crc << 17)) + 0xa282ead8u);
}

// Protocol buffers: a field is its key, (number << 3) | wire type, and its value.
enum WireType : uint64_t { kVarint = 0, kEightBytes = 1, kLengthAndBytes = 2, kFourBytes = 5 };

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>((value & 0x7f) | 0x80);
  return bytes + static_cast<char>(value);
}

std::string key(uint64_t number, WireType type) { return varint(number << 3 | type); }

std::string double_field(uint64_t number, double value) {
  return key(number, kEightBytes) + little_endian(std::bit_cast<uint64_t>(value));
}

std::string float_field(uint64_t number, double value) {
  return key(number, kFourBytes) + little_endian(std::bit_cast<uint32_t>(static_cast<float>(value)));
}

std::string bytes_field(uint64_t number, std::string_view bytes) {
  return key(number, kLengthAndBytes) + varint(bytes.size()) + std::string(bytes);
}

std::string event_record(std::string_view event) {
  const std::string length = little_endian(static_cast<uint64_t>(event.size()));
  return length + masked_crc(length) + std::string(event) + masked_crc(event);
}

std::vector<Scalar> scalars_of(const LogRow& row) {
  std::vector<Scalar> scalars = {{"loss/training", row.loss}};
  if (row.val) scalars.push_back({"loss/validation", *row.val});
  for (const auto& [role, radius] : row.radii) scalars.push_back({"radius/" + role, radius});
  if (row.optimizer) scalars.push_back({"time/optimizer", *row.optimizer});
  return scalars;
}

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const unsigned char byte : bytes) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
  }
  return ~crc;
}

std::string scalars_record(double wall_time, int64_t step, std::span<const Scalar> scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars)
    summary += bytes_field(1, bytes_field(1, scalar.tag) + float_field(2, scalar.value));
  return event_record(double_field(1, wall_time) + key(2, kVarint) + varint(static_cast<uint64_t>(step)) +
                      bytes_field(5, summary));
}

std::string event_file(const std::vector<LogRow>& rows, double wall_time) {
  const double start = rows.empty() ? wall_time : wall_time - rows.back().seconds;
  std::string bytes = event_record(double_field(1, start) + bytes_field(3, "brain.Event:2"));
  for (const LogRow& row : rows) bytes += scalars_record(start + row.seconds, row.step, scalars_of(row));
  return bytes;
}

EventLog::EventLog(const std::filesystem::path& path, const std::vector<LogRow>& rows) : path_(path) {
  write_text_atomically(path, event_file(rows, now()));
  file_.open(path, std::ios::binary | std::ios::app);
  GLUON_CHECK(file_, "tensorboard: cannot write ", path.string());
}

void EventLog::append(const LogRow& row) {
  file_ << scalars_record(now(), row.step, scalars_of(row)) << std::flush;
  GLUON_CHECK(file_, "tensorboard: cannot write ", path_.string());
}

}  // namespace gluon::lab
