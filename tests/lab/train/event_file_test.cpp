#include "lab/train/event_file.h"

#include <cmath>
#include <numeric>

#include "gluon/core/atomic_file.h"
#include "tests/expect_error.h"
#include "tests/lab/train/read_events.h"
#include "tests/temporary_folder.h"

namespace gluon::lab {
namespace {

// RFC 3720, appendix B.4, and the check value of the CRC catalogues.
TEST(Crc32c, KnownVectors) {
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  std::string rising(32, '\0');
  std::iota(rising.begin(), rising.end(), '\0');
  EXPECT_EQ(crc32c(rising), 0x46dd794eu);
  EXPECT_EQ(crc32c(std::string(rising.rbegin(), rising.rend())), 0x113fdb5cu);
}

TEST(EventFile, ARecordInBytes) {
  // The event by hand: field 1 as a double of 1.0, field 2 as the varint 300, field 5 holding one scalar {"a", 0.5}.
  const std::string event(
      "\x09\0\0\0\0\0\0\xf0\x3f\x10\xac\x02\x2a\x0a\x0a\x08\x0a\x01"
      "a\x15\0\0\0\x3f",
      24);
  const std::vector<Scalar> scalars = {{"a", 0.5}};
  const std::string record = scalars_record(1.0, 300, scalars);
  ASSERT_EQ(record.size(), 8 + 4 + event.size() + 4);
  EXPECT_EQ(record.substr(0, 8), std::string("\x18\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(record.substr(12, event.size()), event);
}

TEST(EventFile, ReadsBack) {
  const std::vector<LogRow> rows = {
      {.step = 1, .loss = 5, .seconds = 2, .radii = {{"hidden", 0.25}}},
      {.step = 1000000, .loss = std::nan(""), .val = 4.5, .seconds = 3, .optimizer = 0.125}};
  const std::vector<ReadEvent> events = read_events(event_file(rows, 103));
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].version, "brain.Event:2");
  EXPECT_EQ(events[0].wall_time, 100);
  EXPECT_EQ(events[1].wall_time, 102);
  EXPECT_EQ(events[1].step, 1);
  EXPECT_EQ(events[1].scalars, (std::map<std::string, float>{{"loss/training", 5}, {"radius/hidden", 0.25f}}));
  EXPECT_EQ(events[2].step, 1000000);
  EXPECT_EQ(events[2].scalars.size(), 3u);
  EXPECT_TRUE(std::isnan(events[2].scalars.at("loss/training")));
  EXPECT_EQ(events[2].scalars.at("loss/validation"), 4.5f);
  EXPECT_EQ(events[2].scalars.at("time/optimizer"), 0.125f);
}

TEST(EventFile, AnyChangedBitIsDetected) {
  const std::string bytes = event_file({{.step = 7, .loss = 5}}, 1);
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_THROW(read_events(damaged), std::runtime_error) << "bit " << bit;
  }
}

TEST(EventLog, ContinuesTheLog) {
  const TemporaryFolder folder;
  const auto path = folder.write("events", "of the part of the run that was rewound");
  EventLog log(path, {{.step = 1, .loss = 5}});
  log.append({.step = 2, .loss = 4});
  const std::vector<ReadEvent> events = read_events(read_text(path, "test"));  // while the run goes on
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[2].step, 2);
  EXPECT_EQ(events[2].scalars.at("loss/training"), 4);
  EXPECT_GE(events[2].wall_time, events[1].wall_time);
}

TEST(EventLog, AMissingFolderIsNamed) {
  EXPECT_INPUT_ERROR(EventLog("/nonexistent/events", {}), "/nonexistent/events");
}

}  // namespace
}  // namespace gluon::lab
