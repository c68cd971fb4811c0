#include "lab/train/step_timing.h"

#include <thread>

#include "tests/lab/train/small_config.h"

namespace gluon::lab {
namespace {

class SlowObserver : public StepObserver {
 public:
  void before_step(int64_t /*step*/) override { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }
  bool watches(int64_t step) const override { return step == 1; }
  void after_step(const BatchStep& /*batch*/) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    ++batches;
  }
  int batches = 0;
};

TEST(StepTiming, TheOptimizersShareLeavesOutTheSamples) {
  const StepTiming timing{.forward = 1, .backward = 2, .optimizer = 1, .smoothness = 100};
  EXPECT_EQ(timing.optimizer_share(), 0.25);
}

TEST(StepTiming, ATimedObserverKnowsItsTime) {
  const auto slow = std::make_shared<SlowObserver>();
  TimedObserver timed(slow);
  timed.before_step(0);
  EXPECT_GE(timed.take_seconds(), 0.02);
  EXPECT_EQ(timed.take_seconds(), 0);
  EXPECT_FALSE(timed.watches(0));
  EXPECT_TRUE(timed.watches(1));
  timed.before_step(1);
  timed.after_step({});
  EXPECT_GE(timed.take_seconds(), 0.05);
  EXPECT_EQ(slow->batches, 1);
}

// A sample begins in a step and is completed by the gradients of the next one.
TEST(StepTiming, StepsThatSampleSpendTimeOnSmoothness) {
  for (const std::string mode : {"same_batch", "consecutive", "none"}) {
    TrainConfig config = small_config();
    if (mode != "none") {
      config.smoothness_every = 4;
      config.smoothness_mode = mode;
    }
    Trainer trainer = make_trainer(config);
    for (int i = 0; i < 2; ++i) {
      trainer.step();
      const StepTiming& timing = trainer.last_timing();
      EXPECT_EQ(timing.smoothness > 0, mode != "none") << mode;
      EXPECT_GT(timing.optimizer, 0) << mode;
    }
  }
}

}  // namespace
}  // namespace gluon::lab
