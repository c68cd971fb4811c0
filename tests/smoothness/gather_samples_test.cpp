#include "gluon/smoothness/gather_samples.h"

#include <gtest/gtest.h>

namespace gluon {
namespace {

TEST(GatherSamples, EveryValueArrivesInItsLayer) {
  const auto sample = [](int64_t step) {
    const auto base = static_cast<double>(10 * step);
    return Sample{.step = step,
                  .gradient_change = base + 1,
                  .displacement = base + 2,
                  .smoothness = base + 3,
                  .gradient = base + 4,
                  .momentum = base + 5,
                  .alignment = base + 6,
                  .radius = base + 7};
  };
  const Trajectory mine{Estimator::kFull,
                        {{"a", "hidden", "spectral", "exact", {sample(1), sample(2)}},
                         {"b", "hidden", "rows", "exact", {}},
                         {"c", "head", "max_entry", "exact", {sample(3)}}}};
  const Trajectory all = gather_samples(*make_collective("single", {}), mine);
  EXPECT_EQ(all.estimator, Estimator::kFull);
  ASSERT_EQ(all.layers.size(), 3u);
  for (std::size_t i = 0; i < all.layers.size(); ++i) {
    EXPECT_EQ(all.layers[i].layer, mine.layers[i].layer);
    EXPECT_EQ(all.layers[i].norm, mine.layers[i].norm);
    ASSERT_EQ(all.layers[i].samples.size(), mine.layers[i].samples.size());
    for (std::size_t k = 0; k < all.layers[i].samples.size(); ++k) {
      const Sample &got = all.layers[i].samples[k], &expected = mine.layers[i].samples[k];
      EXPECT_EQ(got.step, expected.step);
      EXPECT_EQ(got.gradient_change, expected.gradient_change);
      EXPECT_EQ(got.displacement, expected.displacement);
      EXPECT_EQ(got.smoothness, expected.smoothness);
      EXPECT_EQ(got.gradient, expected.gradient);
      EXPECT_EQ(got.momentum, expected.momentum);
      EXPECT_EQ(got.alignment, expected.alignment);
      EXPECT_EQ(got.radius, expected.radius);
    }
  }
}

}  // namespace
}  // namespace gluon
