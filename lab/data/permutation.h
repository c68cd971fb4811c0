// A keyed permutation of 0..count-1, computed entry by entry: shuffling without a list in memory.
//
// A rotation by a keyed amount, then a four-round Feistel network on the next even number of bits, repeated until the
// value is below `count`. On few bits the network alone is biased; the rotation makes every image equally likely.

#pragma once

#include <cstdint>

namespace gluon::lab {

/// 64 well mixed bits of (seed, stream, index): the randomness of data order and augmentation (splitmix64).
uint64_t mixed_bits(uint64_t seed, uint64_t stream, uint64_t index);

/// The image of `index` under the permutation with this key, a bijection of 0..count-1 for every key. Throws InputError
/// unless 0 <= index < count.
int64_t permuted(int64_t index, int64_t count, uint64_t key);

}  // namespace gluon::lab
