#include "lab/train/memory.h"

#include <sys/resource.h>

#include <limits>

#include "lab/train/experiment.h"
#include "tests/expect_error.h"
#include "tests/lab/train/small_config.h"

namespace gluon::lab {
namespace {

TEST(Memory, TheStateOfAModelIsCountedExactly) {
  TrainConfig config = small_config();
  config.layers = 3;
  config.width = 256;
  const Trainer trainer = make_trainer(config);
  int64_t entries = 0;
  for (const Layer& layer : trainer.optimizer().layers()) entries += layer.parameter.numel();
  const int64_t extra = needed_memory(config, 256, true) - 3 * 4 * entries;  // of the tensors' own
  EXPECT_GT(extra, 0);
  EXPECT_LT(extra, 100'000);
  EXPECT_EQ(needed_memory(config, 256, true) - needed_memory(config, 256, false), 4 * entries);
  EXPECT_EQ(trainer.optimizer().state_bytes(), 4 * entries);
}

TEST(Memory, AModelBeyondTheMachineIsRefusedBeforeItIsMade) {
  for (int64_t TrainConfig::*member : {&TrainConfig::layers, &TrainConfig::width, &TrainConfig::vocabulary}) {
    TrainConfig config;
    config.*member = 1 << 24;
    config.width = std::max<int64_t>(config.width, 1024);
    EXPECT_INPUT_ERROR(make_experiment(config), "bytes of memory, available are ");
  }
}

TEST(Memory, ALimitOnTheAddressSpaceCounts) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  const int64_t machine = available_memory();
  rlimit limit = before;
  limit.rlim_cur = rlim_t{1} << 50;  // far beyond what the process has mapped
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  EXPECT_LE(available_memory(), machine);
  limit.rlim_cur = 1;
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  const int64_t none = available_memory();
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_EQ(none, 0);
}

}  // namespace
}  // namespace gluon::lab
