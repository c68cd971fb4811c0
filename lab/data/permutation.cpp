#include "lab/data/permutation.h"

#include <bit>

#include "gluon/core/check.h"

namespace gluon::lab {
namespace {

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;
constexpr uint64_t kRounds = 4;

// The finalizer of splitmix64: a bijection of 64 bits in which every input bit moves half of the output bits.
uint64_t mixed(uint64_t bits) {
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
  return bits ^ (bits >> 31);
}

}  // namespace

uint64_t mixed_bits(uint64_t seed, uint64_t stream, uint64_t index) {
  return mixed(mixed(mixed(seed + kGolden) + (stream + 1) * kGolden) + (index + 1) * kGolden);
}

int64_t permuted(int64_t index, int64_t count, uint64_t key) {
  GLUON_CHECK(0 <= index && index < count, "permuted: expected 0 <= index < ", count, ", got ", index);
  if (count == 1) return 0;
  const int half = (std::bit_width(static_cast<uint64_t>(count - 1)) + 1) / 2;
  const uint64_t mask = (uint64_t{1} << half) - 1;
  // Four rounds on few bits are biased; after a random rotation all images of an index are equally likely.
  const auto size = static_cast<uint64_t>(count);
  uint64_t value = (static_cast<uint64_t>(index) + mixed_bits(key, kRounds, 0) % size) % size;
  // The network permutes 0..4^half-1, less than 4 count values, so the loop takes fewer than 4 passes on average. It
  // ends because the cycle of the network leads back to the start.
  do {
    uint64_t left = value >> half;
    uint64_t right = value & mask;
    for (uint64_t round = 0; round < kRounds; ++round) {
      const uint64_t next = left ^ (mixed_bits(key, round, right) & mask);
      left = right;
      right = next;
    }
    value = (left << half) | right;
  } while (value >= size);
  return static_cast<int64_t>(value);
}

}  // namespace gluon::lab
