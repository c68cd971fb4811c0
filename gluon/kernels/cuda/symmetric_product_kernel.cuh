// The kernel behind symmetric_product.h: a persistent, warp-specialised product of tiles 256 x 256 x 64 by clusters of
// two blocks.
//
// Threads: warpgroups 1 and 2 each own 64 of the block's 128 rows: four m64n256k16 per stage, accumulators in 128
// registers per thread. In warpgroup 0 one lane is the producer, which requests boxes of 64 x 64 from the copy engine,
// and two warps send results (symmetric_pending.cuh), so that the warps that feed the tensor cores never wait for a
// copy to end. A ring of kStages slots of 48 KiB (A 128 x 64, B 256 x 64) connects them. Both blocks of a cluster need
// the same B: each loads half of it for both, which cuts the traffic from L2 by a third. Their rings advance together:
// a slot is free when both blocks have released it. The addend D comes through the same ring, in two slots of 128 x
// 128.
//
// Cluster i of n computes the tiles i, i + n, ...: the result does not depend on scheduling. A tile waits only for
// tiles with smaller numbers, so the unfinished tile with the smallest number never waits, provided that its cluster
// runs. The cooperative launch guarantees that: once one thread of a cooperative grid has run, all its threads
// eventually do (CUDA programming guide, C++ execution model), whatever runs on other streams or, through MPS, in other
// processes. Of a plain launch only the blocks of a cluster start together, and two such grids could each hold half of
// the multiprocessors and wait for the other half forever.
//
// Tried on an H200 and left out: bulk reductions instead of `red` for the parameters (0.20 instead of 0.12 ms), more
// registers for the products, diagonal tiles in triangles of 64 columns (no registers are left), and strips of 64 rows
// dealt so that both blocks have the same work on diagonal tiles: the warpgroups of a block then branch differently,
// and all products are 7 to 11 % slower.

#pragma once

#include "gluon/kernels/cuda/symmetric_pending.cuh"

namespace gluon::cuda::tiles {

__device__ __forceinline__ void produce(const Launch& launch, const Shared& shared, int rank) {
  Position position;
  const auto inputs_ready = [&](const Tile& tile) {
    const Arguments& product = launch.product[tile.product()];
    return product.wait_for == nullptr || hopper::has_reached(product.wait_for + tile.matrix(), product.wait_count);
  };
  int number = first_tile(), segment = 0;
  Tile next = number < launch.tiles ? find_tile(launch, number, segment) : Tile();
  bool ready = false;
  while (number < launch.tiles) {
    const Tile tile = next;
    const Arguments& product = launch.product[tile.product()];
    while (!ready) ready = inputs_ready(tile);
    const bool across_a = product.layout == Layout::kAcrossDepth;
    const bool across_b = product.layout != Layout::kAlongDepth;
    const int row = tile.row() + kBlockRows * rank, column = tile.column() + kBlockRows * rank;
    const bool load_a = !a_is_in_b(product, tile);
#pragma unroll 1
    for (int k = 0; k < product.depth_tiles; ++k) {
      acquire(shared, position, (load_a ? 6 : 4) * kBoxBytes);
      const uint32_t slot = shared.slot(position), full = shared.full_at(position);
      const int depth = k * kDepth;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (!load_a) break;
        const int first = row + 64 * i;
        hopper::load_box(slot + kOperandA + i * kBoxBytes, &launch.maps[product.a], full, across_a ? first : depth,
                         across_a ? depth : first, tile.matrix());
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int first = column + 64 * i;
        hopper::load_box_to_both(slot + (2 * rank + i) * kBoxBytes, &launch.maps[product.b], full,
                                 across_b ? first : depth, across_b ? depth : first, tile.matrix());
      }
      position.advance();
      // Look up the next tile, and whether its inputs are ready, during the products of this one.
      if (k == 0) {
        number += tile_stride();
        if (number < launch.tiles) next = find_tile(launch, number, segment);
        ready = false;
      }
      if (!ready && number < launch.tiles && 2 * k >= product.depth_tiles) ready = inputs_ready(next);
    }
    for (int half = 0; half < (product.has_addend ? 2 : 0); ++half) {
      acquire(shared, position, 4 * kBoxBytes);
#pragma unroll 1
      for (int i = 0; i < 4; ++i) {
        hopper::load_box(shared.slot(position) + i * kBoxBytes, &launch.maps[product.d], shared.full_at(position),
                         tile.column() + 128 * half + 64 * (i % 2), row + 64 * (i / 2), tile.matrix());
      }
      position.advance();
    }
  }
}

// acc += factor * addend, whose halves are in two slots.
__device__ __forceinline__ void add_addend(float (&acc)[128], const Shared& shared, Position& position, int group,
                                           float factor) {
  const int lane = threadIdx.x % 32, row = threadIdx.x / 32 % 4 * 16 + lane % 16;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    hopper::barrier_wait(shared.full_at(position), position.parity);
#pragma unroll
    for (int q = 0; q < 8; ++q) {
      uint32_t r[4];
      const uint32_t box = shared.slot(position) + (2 * group + q / 4) * kBoxBytes;
      hopper::load_matrices(box_address(box, row, 2 * (q % 4) + lane / 16), r);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 value = hopper::unpack_half(r[i]);
        acc[64 * half + 8 * q + 2 * i] += factor * value.x;
        acc[64 * half + 8 * q + 2 * i + 1] += factor * value.y;
      }
    }
    release(shared, position.slot);
    position.advance();
  }
}

// acc += factor I, in a tile on the diagonal. A lane holds two neighbours in a row of each block of 8 x 8 entries.
__device__ __forceinline__ void add_identity(float (&acc)[128], int rank, int group, float factor) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, row = lane / 4;
  const float even = row % 2 == 0 ? factor : 0, odd = factor - even;
  const int first_block = row / 2 == lane % 4 ? 16 * rank + 8 * group + 2 * warp : -2;
#pragma unroll
  for (int block = 0; block < 32; ++block) {
    if (block / 2 != first_block / 2) continue;
    acc[4 * block + 2 * (block % 2)] += even;
    acc[4 * block + 2 * (block % 2) + 1] += odd;
  }
}

// 1 / (safety |C|_F^(1/2)) from the partial sums of |C|_F^2, 0 for C = 0. Every lane returns the same.
__device__ __forceinline__ float inverse_bound(const float* partials, int count, float safety) {
  float sum = 0;
  for (int i = threadIdx.x % 32; i < count; i += 32)
    sum += __ldcg(partials + i);  // written by other blocks of this launch
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  return sum == 0 ? 0 : 1 / (safety * sqrtf(sqrtf(sum)));
}

__device__ __forceinline__ float power(float x, int exponent) {
  float result = 1;
  for (int i = 0; i < exponent; ++i) result *= x;
  return result;
}

// Writes one partial sum per warp, sixteen per tile. Entries that are stored twice count twice.
__device__ __forceinline__ void write_squares(const float (&acc)[128], const Tile& tile, int rank, int group,
                                              float* squares, int tiles) {
  float sums[4] = {};  // two for each half: independent additions are faster than one chain
#pragma unroll
  for (int i = 0; i < 128; ++i) sums[i / 64 * 2 + i % 2] += acc[i] * acc[i];
  const float left = sums[0] + sums[1], right = sums[2] + sums[3];
  float sum = tile.on_diagonal() ? (rank == 0 ? left : 2 * left + right) : 2 * (left + right);
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  if (threadIdx.x % 32 == 0) {
    const int warp = 8 * rank + 4 * group + threadIdx.x / 32 % 4;
    squares[(static_cast<int64_t>(tile.matrix()) * tiles + tile.index()) * 16 + warp] = sum;
  }
}

// The factors of a tile's sum, its addend and its target.
struct Factors {
  float alpha, beta, move;
};

__device__ __forceinline__ Factors find_factors(const Arguments& product, int matrix) {
  Factors factors{product.alpha, product.beta, 0};
  if (product.bound != nullptr) {
    const float* partials = product.bound + static_cast<int64_t>(matrix) * product.bound_partials;
    const float s = inverse_bound(partials, product.bound_partials, product.safety);
    factors.alpha *= power(s, product.alpha_power);
    factors.beta *= power(s, product.addend_power);
  }
  if (product.targets != nullptr) factors.move = product.target_factor * product.radii[matrix];
  return factors;
}

__device__ __forceinline__ void consume(const Launch& launch, const Shared& shared, int rank, int group) {
  float acc[128];
  Pending pending(launch);
  Position position;
  int number = first_tile(), segment = 0;
  Tile next = number < launch.tiles ? find_tile(launch, number, segment) : Tile();
  for (;;) {
    // Store now while the next tile is not ready, since it may wait for this result, or if it is too short to store
    // during it.
    const bool long_enough = number < launch.tiles && launch.product[next.product()].depth_tiles > Pending::kBoxes;
    while (pending.box < Pending::kBoxes) {
      const bool ready = long_enough && hopper::barrier_test(shared.full_at(position), position.parity);
      if (hopper::warpgroup_all(kAgree + group, ready)) break;
      pending.store_next(shared, group);
    }
    if (number >= launch.tiles) break;
    const Tile tile = next;
    const Arguments& product = launch.product[tile.product()];
    Factors factors;
    const auto prepare = [&] {
      factors = find_factors(product, tile.matrix());
      number += tile_stride();
      if (number < launch.tiles) next = find_tile(launch, number, segment);
    };
    const uint32_t offset = (a_is_in_b(product, tile) ? 2 * rank * kBoxBytes : kOperandA) + group * kBoxBytes;
    const int depth = product.depth_tiles;
    const bool half = is_half(product, tile, rank);
    if (product.layout == Layout::kMixed) {
      accumulate<Inputs<__half, 256, false, true>>(acc, pending, shared, position, offset, depth, group, prepare);
    } else if (product.layout == Layout::kAlongDepth) {
      if (half) {
        accumulate<Inputs<__half, 128, false, false>>(acc, pending, shared, position, offset, depth, group, prepare);
      } else {
        accumulate<Inputs<__half, 256, false, false>>(acc, pending, shared, position, offset, depth, group, prepare);
      }
    } else if (half) {
      accumulate<Inputs<__half, 128, true, true>>(acc, pending, shared, position, offset, depth, group, prepare);
    } else {
      accumulate<Inputs<__half, 256, true, true>>(acc, pending, shared, position, offset, depth, group, prepare);
    }
    if (factors.alpha != 1) {
#pragma unroll
      for (int i = 0; i < 128; ++i) acc[i] *= factors.alpha;
    }
    if (product.has_addend) add_addend(acc, shared, position, group, factors.beta);
    if (product.identity != 0 && tile.on_diagonal()) add_identity(acc, rank, group, product.identity);
    if (product.squares != nullptr) write_squares(acc, tile, rank, group, product.squares, product.tiles);
    pending.take(acc, tile, factors.move);
  }
}

__global__ void __launch_bounds__(kThreads, 1) __cluster_dims__(kClusterBlocks, 1, 1)
    multiply_tiles(const __grid_constant__ Launch launch) {
  extern __shared__ unsigned char memory[];
  const Shared shared(memory);
  const int rank = static_cast<int>(hopper::cluster_rank());
  if (threadIdx.x == 0) {
    initialise(shared);
    hopper::barrier_init_fence();
  }
  hopper::cluster_barrier();
  if (threadIdx.x < 128) {
    hopper::fewer_registers<kProducerRegisters>();
    const int warp = static_cast<int>(threadIdx.x) / 32;
    if (threadIdx.x == 0) produce(launch, shared, rank);
    if (warp == 1 || warp == 2) send_results(launch, shared, rank, warp - 1);
  } else {
    hopper::more_registers<kConsumerRegisters>();
    consume(launch, shared, rank, threadIdx.x / 128 - 1);
  }
  hopper::cluster_barrier();  // the other block may still write to this block's memory and barriers
}

}  // namespace gluon::cuda::tiles
