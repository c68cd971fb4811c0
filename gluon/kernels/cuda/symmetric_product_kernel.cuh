// The kernel behind symmetric_product.h: a persistent, warp-specialised product of tiles 128 x 256 x 64.
//
// Threads: warpgroup 0 is the producer (one lane asks the copy engine for boxes of 64 x 64), warpgroups 1 and 2 each
// own 64 of the tile's 128 rows: four m64n256k16 a stage, accumulators in 128 registers a thread. A ring of kStages
// slots of 48 KiB (A 128 x 64, B 256 x 64) connects them; the addends D and E come through the same ring, two slots of
// 128 x 128 each. Results go through shared memory to the copy engine, which clips at the border; the mirrored copy is
// stored from a transposed box.
//
// Tiles: of a symmetric product row i (128 rows) needs the columns up to its diagonal block: pairs of blocks as full
// tiles, and for even i the diagonal block alone as a half tile (m64n128k16). On the diagonal A is a part of B's rows
// and is not loaded. Every block starts with tile blockIdx.x and then draws the next one from a counter; which
// block computes a tile does not change its bits.
//
// A full tile moves 48 KiB for 4.2 MFLOP a stage (85 flop a byte of L2), 1024 cycles of tensor cores.

#pragma once

#include "gluon/kernels/cuda/symmetric_hopper.cuh"
#include "gluon/kernels/cuda/symmetric_product.h"

namespace gluon::cuda::tiles {

inline constexpr int kTileRows = 128, kTileColumns = 256, kDepth = 64;
#ifndef GLUON_PRODUCT_STAGES
#define GLUON_PRODUCT_STAGES 3
#endif
inline constexpr int kStages = GLUON_PRODUCT_STAGES;
inline constexpr int kPairs = kStages >= 4 ? 1 : 2;  // result boxes in flight: a direct and a mirrored one each
inline constexpr int kBoxBytes = 64 * 64 * 2;
inline constexpr int kSlotBytes = 6 * kBoxBytes;  // B's four boxes, then A's two
inline constexpr int kOperandA = 4 * kBoxBytes;
inline constexpr int kResultBytes = 2 * kPairs * kBoxBytes;  // of one warpgroup
inline constexpr int kThreads = 384, kConsumers = 2;
inline constexpr int kSharedBytes = 1024 + kStages * kSlotBytes + kConsumers * kResultBytes + 256;

enum class Layout { kAlongDepth, kAcrossDepth, kMixed };  // of A and B in memory; mixed: B across

struct Arguments {
  CUtensorMap a, b, c, d, e;
  Layout layout;
  int depth_tiles, addends;
  bool symmetric, shared_operand;  // lower tiles only; A is B
  int tiles, row_tiles, column_tiles;
  float alpha, beta, gamma;
  int alpha_power, addend_power;
  const float* bound;
  int bound_partials;
  float safety;
  float* squares;
};

// Tiles of one kind of one product, numbered up to `end` in the launch.
struct Segment {
  int end, product;
  bool half;
  int per_matrix;
};

struct Launch {
  Arguments product[kMaxProducts];
  Segment segment[2 * kMaxProducts];
  int tiles;
  int* counter;
};

struct Tile {
  int product, matrix, index;  // index among the matrix's tiles
  int row, column;             // first entry
  bool half, diagonal;         // the diagonal block alone; a full tile that ends with it
};

// Full tiles of a symmetric matrix with `blocks` rows of tiles: row i has (i + 1) / 2.
__host__ __device__ inline int full_tiles(int blocks) {
  const int pairs = blocks / 2;
  return blocks % 2 == 0 ? pairs * pairs : pairs * (pairs + 1);
}

__device__ inline Tile find_tile(const Launch& launch, int index) {
  int s = 0, begin = 0;
  while (index >= launch.segment[s].end) begin = launch.segment[s++].end;
  const Segment& segment = launch.segment[s];
  const Arguments& product = launch.product[segment.product];
  Tile tile;
  tile.product = segment.product;
  tile.matrix = (index - begin) / segment.per_matrix;
  tile.index = (index - begin) - tile.matrix * segment.per_matrix;
  tile.half = segment.half;
  tile.diagonal = false;
  int row, column;  // in units of 128 rows and 256 columns
  if (!product.symmetric) {
    // The shorter side runs fastest: what the multiprocessors share at a time stays in L2.
    const bool rows_first = product.row_tiles < product.column_tiles;
    const int side = rows_first ? product.row_tiles : product.column_tiles;
    const int slow = tile.index / side, fast = tile.index - slow * side;
    row = rows_first ? fast : slow;
    column = rows_first ? slow : fast;
  } else if (tile.half) {
    row = 2 * tile.index;
    column = tile.index;
    tile.index += full_tiles(product.row_tiles);
  } else {
    // Rows 2r - 1 and 2r have r full tiles each, r (r - 1) come before them.
    int r = static_cast<int>((1 + sqrtf(1 + 4.0f * tile.index)) / 2);
    while (r * (r - 1) > tile.index) --r;
    while (r * (r + 1) <= tile.index) ++r;
    const int rest = tile.index - r * (r - 1);
    row = rest < r ? 2 * r - 1 : 2 * r;
    column = rest < r ? rest : rest - r;
    tile.diagonal = row == 2 * r - 1 && column == r - 1;
  }
  tile.row = row * kTileRows;
  tile.column = column * kTileColumns;
  return tile;
}

// A position in the ring; `parity` is that of the slot's current use.
struct Position {
  int slot = 0;
  uint32_t parity = 0;

  __device__ void advance() {
    if (++slot < kStages) return;
    slot = 0;
    parity ^= 1;
  }
};

struct Shared {
  uint32_t slots, results, full, empty, tiles;  // addresses

  __device__ explicit Shared(uint32_t base)
      : slots(base),
        results(base + kStages * kSlotBytes),
        full(results + kConsumers * kResultBytes),
        empty(full + 8 * kStages),
        tiles(empty + 8 * kStages) {}
  __device__ uint32_t slot(const Position& p) const { return slots + p.slot * kSlotBytes; }
  __device__ uint32_t full_at(const Position& p) const { return full + 8 * p.slot; }
  __device__ uint32_t empty_at(const Position& p) const { return empty + 8 * p.slot; }
  __device__ uint32_t tile_at(const Position& p) const { return tiles + 4 * p.slot; }
};

// Loads `boxes` boxes of an operand: rows (or columns, across the depth) from `first`, depth from `depth`.
__device__ inline void load_operand(uint32_t target, const CUtensorMap* map, uint32_t barrier, bool across,
                                    int first, int boxes, int depth, int matrix) {
  for (int i = 0; i < boxes; ++i) {
    const int x = across ? first + 64 * i : depth, y = across ? depth : first + 64 * i;
    hopper::load_box(target + i * kBoxBytes, map, barrier, x, y, matrix);
  }
}

__device__ inline void produce(const Launch& launch, const Shared& shared) {
  Position position;
  const auto acquire = [&](int tile, uint32_t bytes) {
    hopper::barrier_wait(shared.empty_at(position), position.parity ^ 1);
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(shared.tile_at(position)), "r"(tile) : "memory");
    hopper::barrier_expect(shared.full_at(position), bytes);
  };
  int index = blockIdx.x;
  while (index < launch.tiles) {
    const int next = launch.counter == nullptr ? index + gridDim.x : gridDim.x + atomicAdd(launch.counter, 1);
    const Tile tile = find_tile(launch, index);
    const Arguments& product = launch.product[tile.product];
    const bool load_a = !product.shared_operand || !(tile.half || tile.diagonal);
    const int boxes_b = tile.half ? 2 : 4;
    const bool across_a = product.layout == Layout::kAcrossDepth, across_b = product.layout != Layout::kAlongDepth;
    for (int k = 0; k < product.depth_tiles; ++k) {
      acquire(index, (boxes_b + (load_a ? 2 : 0)) * kBoxBytes);
      const uint32_t slot = shared.slot(position), full = shared.full_at(position);
      if (load_a) {
        load_operand(slot + kOperandA, &product.a, full, across_a, tile.row, 2, k * kDepth, tile.matrix);
      }
      load_operand(slot, &product.b, full, across_b, tile.column, boxes_b, k * kDepth, tile.matrix);
      position.advance();
    }
    for (int addend = 0; addend < product.addends; ++addend) {
      const CUtensorMap* map = addend == 0 ? &product.d : &product.e;
      for (int half = 0; half < (tile.half ? 1 : 2); ++half) {
        acquire(index, 4 * kBoxBytes);
        for (int i = 0; i < 4; ++i) {
          hopper::load_box(shared.slot(position) + i * kBoxBytes, map, shared.full_at(position),
                           tile.column + 128 * half + 64 * (i % 2), tile.row + 64 * (i / 2), tile.matrix);
        }
        position.advance();
      }
    }
    index = next;
  }
  acquire(-1, 0);
}

__device__ inline void release(const Shared& shared, const Position& position) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) hopper::barrier_arrive(shared.empty_at(position));
}

// Starts the products of one slot.
template <int kColumns, bool kAcrossA, bool kAcrossB>
__device__ __forceinline__ void multiply_slot(float (&acc)[128], const Shared& shared, const Position& position,
                                              uint32_t offset_a, bool first) {
  constexpr int kStepA = (kAcrossA ? 16 * 128 : 32) >> 4, kStepB = (kAcrossB ? 16 * 128 : 32) >> 4;
  hopper::barrier_wait(shared.full_at(position), position.parity);
  const uint32_t slot = shared.slot(position);
  const uint64_t a = hopper::operand(slot + offset_a, kAcrossA), b = hopper::operand(slot, kAcrossB);
  hopper::products_begin();
#pragma unroll
  for (int step = 0; step < kDepth / 16; ++step) {
    const int add = first && step == 0 ? 0 : 1;
    if constexpr (kColumns == 256) {
      hopper::multiply_256<kAcrossA, kAcrossB>(acc, a + step * kStepA, b + step * kStepB, add);
    } else {
      hopper::multiply_128<kAcrossA, kAcrossB>(acc, a + step * kStepA, b + step * kStepB, add);
    }
  }
  hopper::products_commit();
}

// One tile's sum over the depth. One group of products stays in flight while the next slot is awaited.
template <int kColumns, bool kAcrossA, bool kAcrossB>
__device__ __forceinline__ void accumulate(float (&acc)[128], const Shared& shared, Position& position,
                                           uint32_t offset_a, int depth_tiles) {
  hopper::products_fence(acc);
  multiply_slot<kColumns, kAcrossA, kAcrossB>(acc, shared, position, offset_a, true);
  Position previous = position;
  position.advance();
#pragma unroll 1
  for (int k = 1; k < depth_tiles; ++k) {
    multiply_slot<kColumns, kAcrossA, kAcrossB>(acc, shared, position, offset_a, false);
    hopper::products_wait<1>();
    release(shared, previous);
    previous = position;
    position.advance();
  }
  hopper::products_wait<0>();
  hopper::products_fence(acc);
  release(shared, previous);
}

// Lane's row and 16-byte chunk in a box for the 8 x 8 moves: matrices (rows 0-7, rows 8-15) x (chunk, chunk + 1).
__device__ __forceinline__ uint32_t box_address(uint32_t box, int row, int chunk) {
  return box + row * 128 + ((chunk ^ (row & 7)) << 4);
}

// acc += factor * addend, from 128 x 128 slots.
__device__ __forceinline__ void add_addend(float (&acc)[128], const Shared& shared, Position& position, int group,
                                           float factor, bool half_tile) {
  const int lane = threadIdx.x % 32, row = threadIdx.x / 32 % 4 * 16 + lane % 16;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (half == 1 && half_tile) break;
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
    release(shared, position);
    position.advance();
  }
}

// Sends acc to C, 64 columns at a time, and to the mirrored place.
__device__ __forceinline__ void store_tile(const float (&acc)[128], uint32_t results, const CUtensorMap* map,
                                           const Tile& tile, int group, bool symmetric) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const bool leader = threadIdx.x % 128 == 0;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if (j >= 2 && tile.half) break;
    const bool mirror = symmetric && !tile.half && (j < 2 || !tile.diagonal);
    const uint32_t direct = results + 2 * (j % kPairs) * kBoxBytes, mirrored = direct + kBoxBytes;
    if (leader) hopper::store_wait_read<kPairs - 1>();
    hopper::warpgroup_barrier(1 + group);
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const int first = 32 * j + 8 * q;
      uint32_t r[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) r[i] = hopper::pack_half(acc[first + 2 * i], acc[first + 2 * i + 1]);
      hopper::store_matrices(box_address(direct, 16 * warp + lane % 16, 2 * q + lane / 16), r);
      if (mirror) {
        const int row = 16 * q + lane / 16 * 8 + lane % 8;
        hopper::store_transposed(box_address(mirrored, row, 2 * warp + lane / 8 % 2), r);
      }
    }
    hopper::async_proxy_fence();
    hopper::warpgroup_barrier(1 + group);
    if (leader) {
      const int row = tile.row + 64 * group, column = tile.column + 64 * j;
      hopper::store_box(map, direct, column, row, tile.matrix);
      if (mirror) hopper::store_box(map, mirrored, row, column, tile.matrix);
      hopper::store_commit();
    }
  }
}

// 1 / (safety |C|_F^(1/2)) from the partial sums of |C|_F^2, 0 for C = 0; the same in every lane.
__device__ inline float inverse_bound(const float* partials, int count, float safety) {
  float sum = 0;
  for (int i = threadIdx.x % 32; i < count; i += 32) sum += partials[i];
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  return sum == 0 ? 0 : 1 / (safety * sqrtf(sqrtf(sum)));
}

__device__ inline float power(float x, int exponent) {
  float result = 1;
  for (int i = 0; i < exponent; ++i) result *= x;
  return result;
}

// One partial sum a warp; what is stored twice counts twice.
__device__ __forceinline__ void write_squares(const float (&acc)[128], const Tile& tile, int group, float* squares,
                                              int tiles) {
  float sum = 0;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (half == 1 && tile.half) break;
    float part = 0;
#pragma unroll
    for (int i = 64 * half; i < 64 * half + 64; ++i) part += acc[i] * acc[i];
    sum += tile.half || (tile.diagonal && half == 1) ? part : 2 * part;
  }
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  if (threadIdx.x % 32 == 0) {
    const int warp = 4 * group + threadIdx.x / 32 % 4;
    squares[(static_cast<int64_t>(tile.matrix) * tiles + tile.index) * 8 + warp] = sum;
  }
}

__device__ inline void consume(const Launch& launch, const Shared& shared, int group) {
  float acc[128];
  Position position;
  const uint32_t results = shared.results + group * kResultBytes;
  for (;;) {
    hopper::barrier_wait(shared.full_at(position), position.parity);
    int index;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(index) : "r"(shared.tile_at(position)) : "memory");
    if (index < 0) break;
    const Tile tile = find_tile(launch, index);
    const Arguments& product = launch.product[tile.product];
    float alpha = product.alpha, beta = product.beta, gamma = product.gamma;
    if (product.bound != nullptr) {
      const float* partials = product.bound + static_cast<int64_t>(tile.matrix) * product.bound_partials;
      const float s = inverse_bound(partials, product.bound_partials, product.safety);
      alpha *= power(s, product.alpha_power);
      beta *= power(s, product.addend_power);
      gamma *= power(s, product.addend_power);
    }
    uint32_t offset = kOperandA;
    if (product.shared_operand && tile.half) offset = 0;
    if (product.shared_operand && tile.diagonal) offset = 2 * kBoxBytes;
    offset += group * kBoxBytes;
    const int depth = product.depth_tiles;
    if (product.layout == Layout::kMixed) {
      accumulate<256, false, true>(acc, shared, position, offset, depth);
    } else if (product.layout == Layout::kAlongDepth) {
      if (tile.half) {
        accumulate<128, false, false>(acc, shared, position, offset, depth);
      } else {
        accumulate<256, false, false>(acc, shared, position, offset, depth);
      }
    } else if (tile.half) {
      accumulate<128, true, true>(acc, shared, position, offset, depth);
    } else {
      accumulate<256, true, true>(acc, shared, position, offset, depth);
    }
#pragma unroll
    for (int i = 0; i < 128; ++i) acc[i] *= alpha;
    if (product.addends > 0) add_addend(acc, shared, position, group, beta, tile.half);
    if (product.addends > 1) add_addend(acc, shared, position, group, gamma, tile.half);
    if (product.squares != nullptr) write_squares(acc, tile, group, product.squares, product.tiles);
    store_tile(acc, results, &product.c, tile, group, product.symmetric);
  }
  if (threadIdx.x % 128 == 0) hopper::store_wait_all();
}

__global__ void __launch_bounds__(kThreads, 1) multiply_tiles(const __grid_constant__ Launch launch) {
  extern __shared__ unsigned char memory[];
  const Shared shared((hopper::shared_address(memory) + 1023) & ~1023u);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      hopper::barrier_init(shared.full + 8 * i, 1);
      hopper::barrier_init(shared.empty + 8 * i, 4 * kConsumers);
    }
    hopper::barrier_init_fence();
  }
  __syncthreads();
  hopper::allow_next_launch();
  hopper::wait_for_previous_launch();
  if (threadIdx.x < 128) {
    hopper::fewer_registers<40>();
    if (threadIdx.x == 0) produce(launch, shared);
  } else {
    hopper::more_registers<232>();
    consume(launch, shared, threadIdx.x / 128 - 1);
  }
}

}  // namespace gluon::cuda::tiles
