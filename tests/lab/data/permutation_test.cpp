#include "lab/data/permutation.h"

#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "tests/expect_error.h"

namespace gluon::lab {
namespace {

TEST(Permutation, IsABijectionForEveryCountAndKey) {
  for (int64_t count = 1; count <= 300; ++count) {
    for (const uint64_t key : {uint64_t{0}, uint64_t{7}, ~uint64_t{0}}) {
      std::vector<bool> hit(count);
      for (int64_t i = 0; i < count; ++i) {
        const int64_t image = permuted(i, count, key);
        ASSERT_TRUE(0 <= image && image < count) << count << " " << i;
        ASSERT_FALSE(hit[image]) << count << " " << i;
        hit[image] = true;
      }
    }
  }
}

TEST(Permutation, WorksAtTheLargestCounts) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  for (const int64_t index : {int64_t{0}, int64_t{1}, most / 2, most - 1}) {
    const int64_t image = permuted(index, most, 3);
    EXPECT_TRUE(0 <= image && image < most);
  }
}

TEST(Permutation, KeysGiveDifferentOrders) {
  const int64_t count = 1000;
  int64_t fixed = 0, equal = 0;
  for (int64_t i = 0; i < count; ++i) {
    fixed += permuted(i, count, 1) == i;
    equal += permuted(i, count, 1) == permuted(i, count, 2);
  }
  // A random order has one fixed point on average; 12 have probability below 1e-9.
  EXPECT_LT(fixed, 12);
  EXPECT_LT(equal, 12);
}

TEST(Permutation, ImagesAreUniformOverKeys) {
  constexpr int64_t kCount = 10;
  constexpr int kKeys = 10000;
  for (int64_t index = 0; index < kCount; ++index) {
    std::vector<int> hits(kCount);
    for (int key = 0; key < kKeys; ++key) ++hits[permuted(index, kCount, mixed_bits(5, 1, key))];
    for (const int count : hits) EXPECT_NEAR(count, kKeys / kCount, 6 * std::sqrt(kKeys / kCount));
  }
}

TEST(Permutation, MixedBitsDependOnEveryArgument) {
  std::set<uint64_t> seen;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    for (uint64_t stream = 0; stream < 10; ++stream) {
      for (uint64_t index = 0; index < 10; ++index) seen.insert(mixed_bits(seed, stream, index));
    }
  }
  EXPECT_EQ(seen.size(), 1000U);
  double ones = 0;
  for (uint64_t index = 0; index < 1000; ++index) ones += std::popcount(mixed_bits(1, 2, index));
  EXPECT_NEAR(ones / 64000, 0.5, 0.01);
}

// Checkpoints rely on the order of the data.
TEST(Permutation, DoesNotChangeBetweenVersions) {
  EXPECT_EQ(mixed_bits(1, 2, 3), 9613205829653846581U);
  std::vector<int64_t> order;
  for (int64_t i = 0; i < 8; ++i) order.push_back(permuted(i, 8, 42));
  EXPECT_EQ(order, (std::vector<int64_t>{3, 1, 6, 4, 2, 0, 7, 5}));
}

TEST(Permutation, RejectsIndicesOutOfRange) {
  EXPECT_INPUT_ERROR(permuted(5, 5, 0), "permuted: expected 0 <= index < 5, got 5");
  EXPECT_INPUT_ERROR(permuted(-1, 5, 0), "permuted: expected 0 <= index < 5, got -1");
  EXPECT_INPUT_ERROR(permuted(0, 0, 0), "permuted: expected 0 <= index < 0, got 0");
}

}  // namespace
}  // namespace gluon::lab
