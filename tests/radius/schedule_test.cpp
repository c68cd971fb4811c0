#include "gluon/radius/schedule.h"

#include <map>
#include <vector>

#include "tests/expect_error.h"

namespace gluon {
namespace {

TEST(Schedule, MultiplierOfEachStep) {
  const std::vector<std::pair<Schedule, std::map<int64_t, double>>> cases{
      {Schedule(), {{12345, 1}}},
      {Schedule::warmup(4), {{0, 0.25}, {3, 1}, {400, 1}}},
      {Schedule::linear(100, 20, 10), {{0, 0.1}, {10, 1}, {80, 1}, {90, 0.5}, {99, 0.05}, {1000, 0.05}}},
      {Schedule::cosine(1000, 0.1), {{0, 1}, {500, 0.55}}},
      {Schedule::cosine(110, 0.2, 10), {{4, 0.5}, {9, 1}, {10, 1}, {60, 0.6}}},
      // The limits of every argument.
      {Schedule::linear(1, 0), {{0, 1}}},
      {Schedule::linear(10, 0), {{9, 1}}},
      {Schedule::linear(10, 10), {{0, 1}, {5, 0.5}}},
      {Schedule::linear(10, 5, 5), {{5, 1}}},
      {Schedule::cosine(10, 1), {{5, 1}}},
      {Schedule::cosine(10, 0, 10), {{10, 1}}}};
  for (const auto& [schedule, multipliers] : cases) {
    for (const auto& [step, multiplier] : multipliers) {
      EXPECT_NEAR(schedule.multiplier(step), multiplier, 1e-12) << schedule.name() << " at " << step;
    }
  }
}

TEST(Schedule, CosineFallsToItsFloorAndStaysThere) {
  const Schedule schedule = Schedule::cosine(1000, 0.1);
  EXPECT_NEAR(schedule.multiplier(999), 0.1, 1e-4);
  EXPECT_GT(schedule.multiplier(999), 0.1);
  EXPECT_DOUBLE_EQ(schedule.multiplier(2000), schedule.multiplier(999));
}

TEST(Schedule, NamesParseBack) {
  for (const char* name : {"constant", "warmup(100000)", "linear(100000,20,0)", "cosine(5000,0.1,100)"}) {
    EXPECT_EQ(make_schedule(name).name(), name);
  }
  EXPECT_EQ(make_schedule("linear(100,20)").name(), "linear(100,20,0)");
  EXPECT_EQ(make_schedule("cosine(100)").name(), "cosine(100,0,0)");
}

TEST(Schedule, BadInput) {
  EXPECT_INPUT_ERROR(Schedule::warmup(-1), "warmup must be >= 0 steps, got -1");
  EXPECT_INPUT_ERROR(Schedule::linear(0, 0), "total must be >= 1 steps, got 0");
  EXPECT_INPUT_ERROR(Schedule::linear(10, 11), "cooldown must be in [0, total = 10], got 11");
  EXPECT_INPUT_ERROR(Schedule::linear(10, -1), "cooldown must be in [0, total = 10], got -1");
  EXPECT_INPUT_ERROR(Schedule::cosine(10, 2), "floor must be in [0, 1], got 2");
  EXPECT_INPUT_ERROR(Schedule::cosine(10, -0.5), "floor must be in [0, 1], got -0.5");
  EXPECT_INPUT_ERROR(Schedule::cosine(10, 0, 11), "warmup and cooldown must fit into total = 10, got 11 + 0");
  EXPECT_INPUT_ERROR(make_schedule("linear(9223372036854775807,9223372036854775807,9223372036854775807)"),
                     "warmup and cooldown must fit into total");
  EXPECT_INPUT_ERROR(make_schedule("step(3)"), "unknown name 'step(3)'; allowed are constant, warmup(STEPS)");
  for (const char* name : {"step", "step(3,4)", "constant(1)", "warmup", "warmup(1,2)", "linear(9)", "linear(9,1,1,1)",
                           "cosine", "cosine(9,0,1,1)"}) {
    EXPECT_INPUT_ERROR(make_schedule(name), "unknown name '" + std::string(name) + "'");
  }
}

}  // namespace
}  // namespace gluon
