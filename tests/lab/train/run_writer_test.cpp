#include "lab/train/run_writer.h"

#include <gtest/gtest.h>

#include <sstream>

namespace gluon::lab {
namespace {

// What the progress shows for these rows of a log, on a terminal or in a file.
std::string shown(const std::vector<LogRow>& rows, bool live, const Pace& pace = {400, 51234, 3725}) {
  std::ostringstream out;
  Progress progress(out, live);
  for (const LogRow& row : rows) progress.show(row, pace);
  progress.finish();
  return out.str();
}

const LogRow kRow{.step = 120, .loss = 2.10341, .val = 2.221, .optimizer = 0.118};
const LogRow kUnmeasured{.step = 120, .loss = 2.10341};  // neither evaluated nor timed
const std::string kLine = "step 120/400  loss 2.1034  val 2.2210  51.2k tok/s  optimizer 12 %  1:02:05 left";

TEST(Progress, ATerminalShowsOneLiveLine) {
  const std::string begin = "\r\033[K";
  EXPECT_EQ(shown({kRow, kRow}, true), begin + kLine + begin + kLine + "\n");
  EXPECT_EQ(shown({{.step = 120, .loss = 2.10341, .optimizer = 0.118}}, true, {400, 950, 42}),
            begin + "step 120/400  loss 2.1034  950 tok/s  optimizer 12 %  0:42 left\n");
  EXPECT_EQ(shown({kUnmeasured}, true, {400, 950, 42}), begin + "step 120/400  loss 2.1034  950 tok/s  0:42 left\n");
  EXPECT_EQ(shown({kUnmeasured}, true, {400, 2.5e6, 59.6}),
            begin + "step 120/400  loss 2.1034  2.50M tok/s  1:00 left\n");
  // The last validation loss stays.
  EXPECT_EQ(shown({kRow, kUnmeasured}, true),
            begin + kLine + begin + "step 120/400  loss 2.1034  val 2.2210  51.2k tok/s  1:02:05 left\n");
}

TEST(Progress, AFileGetsALinePerEvaluation) { EXPECT_EQ(shown({kUnmeasured, kRow}, false), kLine + "\n"); }

}  // namespace
}  // namespace gluon::lab
