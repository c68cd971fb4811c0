// Event files for TensorBoard: scalars by tag and step.
//
//   file    = records, the first one with file_version "brain.Event:2"
//   record  = length (8 bytes) | masked CRC of the length | the event | masked CRC of the event
//   event   = { wall_time = 1: double, step = 2: int64, file_version = 3: string, summary = 5: { value = 1: scalars } }
//   scalar  = { tag = 1: string, simple_value = 2: float }
//
// Integers are little-endian; events are protocol buffers with the field numbers above; the CRC is CRC-32C, masked as
// ((crc >> 15) | (crc << 17)) + 0xa282ead8.

#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lab/train/run_directory.h"

namespace gluon::lab {

struct Scalar {
  std::string tag;
  double value = 0;
};

/// CRC-32C (Castagnoli) of the bytes.
uint32_t crc32c(std::string_view bytes);

/// A record with scalars. Times are seconds since 1970.
std::string scalars_record(double wall_time, int64_t step, std::span<const Scalar> scalars);

/// The whole file of a log whose last row was written at `wall_time`. A row of log.csv gives the scalars loss/training,
/// loss/validation, radius/<role> and time/optimizer.
std::string event_file(const std::vector<LogRow>& rows, double wall_time);

/// The event file of a run in progress.
class EventLog {
 public:
  /// Writes `rows`, the log so far, over an event file that is there. Throws InputError when that fails.
  EventLog(const std::filesystem::path& path, const std::vector<LogRow>& rows);

  /// Adds a row and flushes. Throws InputError when that fails.
  void append(const LogRow& row);

 private:
  std::filesystem::path path_;
  std::ofstream file_;
};

}  // namespace gluon::lab
