#include "lab/train/number_copy.h"

#include <gtest/gtest.h>
#include <torch/cuda.h>

namespace gluon::lab {
namespace {

// What is written to the number's memory afterwards does not reach the copy.
void expect_copied_before(const torch::Device& device) {
  for (const auto type : {torch::kFloat, torch::kDouble}) {
    torch::Tensor number = torch::full({}, 3.25, torch::device(device).dtype(type));
    const NumberCopy copy(number);
    number.fill_(-1);
    EXPECT_EQ(copy.value(), 3.25);
    EXPECT_EQ(copy.value(), 3.25);
  }
}

TEST(NumberCopy, KeepsTheNumberOfItsTime) { expect_copied_before(torch::kCPU); }

TEST(NumberCopy, KeepsTheNumberOfItsTimeOnAGpu) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA device";
  expect_copied_before(torch::kCUDA);
}

}  // namespace
}  // namespace gluon::lab
