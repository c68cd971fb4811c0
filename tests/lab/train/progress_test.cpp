#include "lab/train/progress.h"

#include <gtest/gtest.h>

#include <sstream>

namespace gluon::lab {
namespace {

const ProgressState kState{120, 400, 2.10341, 2.221, 51234, 0.118, 3725, true};

TEST(Progress, TheLineHasAllNumbers) {
  EXPECT_EQ(progress_line(kState), "step 120/400  loss 2.1034  val 2.2210  51.2k tok/s  optimizer 12 %  1:02:05 left");
  ProgressState early = kState;
  early.val.reset();
  early.tokens_per_second = 950;
  early.seconds_left = 42;
  EXPECT_EQ(progress_line(early), "step 120/400  loss 2.1034  950 tok/s  optimizer 12 %  0:42 left");
  early.optimizer_share.reset();
  EXPECT_EQ(progress_line(early), "step 120/400  loss 2.1034  950 tok/s  0:42 left");
}

TEST(Progress, ATerminalShowsOneLiveLine) {
  std::ostringstream out;
  Progress progress(out, true);
  progress.show(kState);
  progress.show(kState);
  progress.finish();
  EXPECT_EQ(out.str(), "\r\033[K" + progress_line(kState) + "\r\033[K" + progress_line(kState) + "\n");
}

TEST(Progress, AFileGetsALinePerEvaluation) {
  std::ostringstream out;
  Progress progress(out, false);
  ProgressState between = kState;
  between.evaluated = false;
  progress.show(between);
  progress.show(kState);
  progress.finish();
  EXPECT_EQ(out.str(), progress_line(kState) + "\n");
}

}  // namespace
}  // namespace gluon::lab
