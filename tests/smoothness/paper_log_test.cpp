#include "gluon/smoothness/paper_log.h"

#include <cmath>

#include "gluon/smoothness/trajectory.h"
#include "tests/expect_error.h"
#include "tests/lab/data/shared_data.h"
#include "tests/temporary_folder.h"

namespace gluon {
namespace {

using lab::shared_data;

TEST(PaperLog, ReadsSamplesAndSkipsOtherLines) {
  const TemporaryFolder folder;
  const auto path = folder.write("log.txt",
                                 "print0(f\"step:{step} ({i}) L_estimated: {x} norm_grad: {y}\")\n"
                                 "step:0/5001 val_loss:16.0102 train_time:292ms step_avg:nanms\n"
                                 "step:50/5001 (10) L_estimated: 2.5 norm_grad: 0.25\n"
                                 "step:50/5001 (2) L_estimated: 1e-3 norm_grad: 4\r\n"
                                 "step:100/5001 (10) L_estimated: nan norm_grad: 0.5\n");
  const Trajectory trajectory = read_paper_log(path);
  EXPECT_EQ(trajectory.estimator, Estimator::kUnknown);
  ASSERT_EQ(trajectory.layers.size(), 2);
  EXPECT_EQ(trajectory.layers[0].layer, "10");
  EXPECT_EQ(trajectory.layers[0].group, "");
  ASSERT_EQ(trajectory.layers[0].samples.size(), 2);
  EXPECT_EQ(trajectory.layers[0].samples[0].step, 50);
  EXPECT_EQ(trajectory.layers[0].samples[0].smoothness, 2.5);
  EXPECT_EQ(trajectory.layers[0].samples[0].gradient, 0.25);
  EXPECT_TRUE(std::isnan(trajectory.layers[0].samples[0].displacement));
  EXPECT_TRUE(std::isnan(trajectory.layers[0].samples[1].smoothness));
  EXPECT_EQ(trajectory.layers[1].layer, "2");
  EXPECT_EQ(trajectory.layers[1].samples[0].smoothness, 1e-3);
}

TEST(PaperLog, ReadsTheCnnFormAndSkipsHalfALastLine) {
  const TemporaryFolder folder;
  const auto path = folder.write("log.txt",
                                 "step:1 (0) L_estimated: 4237.2480 norm_grad: 8.9521\n"
                                 "step:2 (0) L_estimated: 20.6075 norm_gr");
  const Trajectory trajectory = read_paper_log(path);
  ASSERT_EQ(trajectory.layers.size(), 1);
  ASSERT_EQ(trajectory.layers[0].samples.size(), 1);
  EXPECT_EQ(trajectory.layers[0].samples[0].smoothness, 4237.248);
}

// A killed process may leave "8.9" of "8.9521", which is also a number.
TEST(PaperLog, SkipsALastLineWithoutLineBreak) {
  const TemporaryFolder folder;
  const std::string line = "step:1 (0) L_estimated: 4237.2480 norm_grad: 8.9521";
  for (const std::string& last : {line, line.substr(0, line.size() - 2)}) {
    const Trajectory trajectory = read_paper_log(folder.write("log.txt", line + "\n" + last));
    EXPECT_EQ(trajectory.layers[0].samples.size(), 1U) << last;
  }
  EXPECT_INPUT_ERROR(read_paper_log(folder.write("log.txt", line)), "log.txt holds no samples");
}

TEST(PaperLog, ReadsTheAuthorsLogs) {
  GLUON_SHARED_DATA_OR_SKIP(folder, "paper-logs");
  const Trajectory nanogpt = read_trajectory(folder / "nanogpt-unscion.txt");
  ASSERT_EQ(nanogpt.layers.size(), 73);
  for (std::size_t i = 0; i < nanogpt.layers.size(); ++i) {
    EXPECT_EQ(nanogpt.layers[i].layer, std::to_string(i));
    EXPECT_EQ(nanogpt.layers[i].samples.size(), 99);
  }
  EXPECT_EQ(nanogpt.layers[24].samples[0].smoothness, 2.0423);
  EXPECT_EQ(nanogpt.layers[24].samples[0].gradient, 0.0258);
  const Trajectory cnn = read_trajectory(folder / "cnn-fullbatch.txt");
  ASSERT_EQ(cnn.layers.size(), 14);
  EXPECT_EQ(cnn.layers[13].samples.size(), 79);
  EXPECT_EQ(cnn.layers[13].samples.back().step, 79);
}

TEST(PaperLog, BadInput) {
  const TemporaryFolder folder;
  EXPECT_INPUT_ERROR(read_paper_log(folder.path() / "none"), "smoothness: cannot read");
  EXPECT_INPUT_ERROR(read_paper_log(folder.path()), "smoothness: cannot read " + folder.path().string());
  EXPECT_INPUT_ERROR(read_paper_log(folder.write("empty.txt", "step:0/10 val_loss:3\n")),
                     "empty.txt holds no samples, lines such as 'step:50/5001 (0) L_estimated:");
  EXPECT_INPUT_ERROR(read_paper_log(folder.write("bad.txt",
                                                 "step:1 (0) L_estimated: 1 norm_grad: 2\n"
                                                 "step:2 (0) L_estimated: x norm_grad: 2\n")),
                     "bad.txt line 2: expected L_estimated: NUMBER norm_grad: NUMBER, got 'step:2 (0)");
  EXPECT_INPUT_ERROR(read_paper_log(folder.write("bad.txt", "step:1 (0) L_estimated: 1 norm_grad: \n")),
                     "bad.txt line 1: expected L_estimated: NUMBER norm_grad: NUMBER");
  EXPECT_INPUT_ERROR(read_paper_log(folder.write("bad.txt", "step: (0) L_estimated: 1 norm_grad: 2\n")),
                     "bad.txt holds no samples");
}

}  // namespace
}  // namespace gluon
