#include "lab/models/cuda/mlp_product.h"

#include <algorithm>
#include <limits>

#include "gluon/kernels/cuda/tensor_map.h"
#include "gluon/kernels/cuda/tile_ring.cuh"

// A persistent product of tiles of 256 x 128 by clusters of two blocks, each with 128 rows. One lane of warpgroup 0
// requests operands from the copy engine, 64 columns of depth at a time, into a ring of five slots: the block's rows of A,
// and the 128 rows of B, of which each block loads half for both. Warpgroups 1 and 2 take turns: while one feeds the
// tensor cores with its whole tile, the other computes the function of its own and sends it. At these depths that is 15 %
// faster than both on one tile of twice the size, where the tensor cores wait at every tile's end. Blocks wait only for
// the other block of their cluster, which starts together with them: no cooperative launch is needed.

namespace gluon::lab::cuda {
namespace {

using namespace gluon::cuda;

using tiles::kBoxBytes;
using tiles::kClusterBlocks;
using tiles::kDepth;
using tiles::kThreads;

constexpr int kRows = 128, kColumns = 128;  // of a block's part of a tile, which is kClusterBlocks times as high
constexpr int kStages = 5, kSlotBytes = 4 * kBoxBytes, kOperandB = 2 * kBoxBytes;
constexpr int kConsumers = 2, kResultBoxes = 4;
constexpr int kSharedBytes = 1024 + kStages * kSlotBytes + kConsumers * kResultBoxes * kBoxBytes + 256;
static_assert(kSharedBytes <= tiles::kSharedBytes);  // which resident_clusters() asks for

struct Launch {
  CUtensorMap a, b, c, y;
  int tiles, column_tiles, depth_tiles;
};

// The first row and column of a cluster's tile. Columns run fastest, so that the rows of A that the multiprocessors
// share at a time stay in L2.
struct Tile {
  int row, column;

  __device__ Tile(const Launch& launch, int number, int rank)
      : row(kRows * (kClusterBlocks * (number / launch.column_tiles) + rank)),
        column(kColumns * (number % launch.column_tiles)) {}
};

// Shared memory: the ring, the boxes of both warpgroups' results, barriers.
struct Shared {
  uint32_t base;  // address

  __device__ explicit Shared(const void* memory) : base((hopper::shared_address(memory) + 1023) & ~1023u) {}
  __device__ uint32_t slot(int i) const { return base + i * kSlotBytes; }
  __device__ uint32_t box(int group, int i) const {
    return base + kStages * kSlotBytes + (group * kResultBoxes + i) * kBoxBytes;
  }
  __device__ uint32_t full(int i) const { return base + kSharedBytes - 1024 - 256 + 8 * i; }
  __device__ uint32_t empty(int i) const { return full(kStages + i); }
  __device__ uint32_t arrived(int group) const { return full(2 * kStages + group); }  // y
};

// A position in the ring; `parity` is that of the slot's current use.
struct Position {
  int slot = 0;
  uint32_t parity = 0;

  __device__ void advance(int slots = 1) {
    slot += slots;
    parity ^= slot / kStages & 1;
    slot %= kStages;
  }
};

// Barriers of a warpgroup (id + group): its boxes are free; they are full.
constexpr int kFree = 1, kFull = 3;

__device__ __forceinline__ float relu(float x) { return x < 0 ? 0 : x; }  // NaN passes

__device__ __forceinline__ float root(float x) {
  float result;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

__device__ __forceinline__ uint32_t squared_relu(uint32_t pair) {
  const float2 x = hopper::unpack_bfloat16(pair);
  return hopper::pack_bfloat16(2 * relu(x.x) * relu(x.x), 2 * relu(x.y) * relu(x.y));
}

__device__ __forceinline__ uint32_t mlp_gradient(uint32_t gradient, uint32_t square) {
  const float2 g = hopper::unpack_bfloat16(gradient), y = hopper::unpack_bfloat16(square);
  return hopper::pack_bfloat16(g.x * root(8 * y.x), g.y * root(8 * y.y));
}

template <bool kBackward>
__device__ __forceinline__ void produce(const Launch& launch, const Shared& shared, int rank) {
  Position position;
  for (int number = tiles::first_tile(); number < launch.tiles; number += tiles::tile_stride()) {
    const Tile tile(launch, number, rank);
    const int column = tile.column + 64 * rank;
#pragma unroll 1
    for (int k = 0; k < launch.depth_tiles; ++k) {
      const uint32_t slot = shared.slot(position.slot), full = shared.full(position.slot);
      hopper::barrier_wait(shared.empty(position.slot), position.parity ^ 1);
      hopper::barrier_expect(full, kSlotBytes);
      const int depth = k * kDepth;
      hopper::load_box(slot, &launch.a, full, depth, tile.row, 0);
      hopper::load_box(slot + kBoxBytes, &launch.a, full, depth, tile.row + 64, 0);
      hopper::load_box_to_both(slot + kOperandB + rank * kBoxBytes, &launch.b, full, kBackward ? column : depth,
                               kBackward ? depth : column, 0);
      position.advance();
    }
  }
}

// Frees a slot for the producers of both blocks.
__device__ __forceinline__ void release(const Shared& shared, int slot) {
  __syncwarp();
  const uint32_t lane = threadIdx.x % 32;
  if (lane < kClusterBlocks) hopper::barrier_arrive(shared.empty(slot), lane);
}

// acc = the tile's product, its upper and lower 64 rows.
template <bool kBackward>
__device__ __forceinline__ void accumulate(float (&upper)[64], float (&lower)[64], const Shared& shared,
                                           Position& position, int depth_tiles) {
  constexpr int kStepA = 32 >> 4, kStepB = (kBackward ? 16 * 128 : 32) >> 4;
  hopper::products_fence(upper);
  hopper::products_fence(lower);
  int previous = 0;
#pragma unroll 1
  for (int k = 0; k < depth_tiles; ++k) {
    hopper::barrier_wait(shared.full(position.slot), position.parity);
    const uint32_t slot = shared.slot(position.slot);
    const uint64_t a = hopper::operand(slot, false), b = hopper::operand(slot + kOperandB, kBackward);
    const uint64_t next_rows = kBoxBytes >> 4;
    hopper::products_begin();
#pragma unroll
    for (int step = 0; step < kDepth / 16; ++step) {
      const int add = k > 0 || step > 0;
      hopper::multiply<__nv_bfloat16, false, kBackward>(upper, a + step * kStepA, b + step * kStepB, add);
      hopper::multiply<__nv_bfloat16, false, kBackward>(lower, a + next_rows + step * kStepA, b + step * kStepB, add);
    }
    hopper::products_commit();
    hopper::products_wait<1>();
    if (k > 0) release(shared, previous);
    previous = position.slot;
    position.advance();
  }
  hopper::products_wait<0>();
  hopper::products_fence(upper);
  hopper::products_fence(lower);
  release(shared, previous);
}

// Writes 64 columns of 64 rows to a box, in the backward pass in the place of y's entries there.
template <bool kBackward, int kBox> __device__ __forceinline__ void write_box(const float (&acc)[64], uint32_t box) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    const uint32_t address = tiles::box_address(box, 16 * warp + lane % 16, 2 * q + lane / 16);
    uint32_t squares[4], r[4];
    if constexpr (kBackward) hopper::load_matrices(address, squares);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int first = 32 * kBox + 8 * q + 2 * i;
      const uint32_t entry = hopper::pack_bfloat16(acc[first], acc[first + 1]);
      r[i] = kBackward ? mlp_gradient(entry, squares[i]) : squared_relu(entry);
    }
    hopper::store_matrices(address, r);
  }
}

template <bool kBackward>
__device__ __forceinline__ void consume(const Launch& launch, const Shared& shared, int rank, int group) {
  const bool leader = threadIdx.x % 128 == 0;
  Position position;
  position.advance(group * launch.depth_tiles);
  uint32_t turn = 0;
  float upper[64], lower[64];
  for (int number = tiles::first_tile() + group * tiles::tile_stride(); number < launch.tiles;
       number += kConsumers * tiles::tile_stride()) {
    const Tile tile(launch, number, rank);
    const auto for_boxes = [&](auto move) {
#pragma unroll
      for (int i = 0; i < kResultBoxes; ++i)
        move(shared.box(group, i), tile.column + 64 * (i % 2), tile.row + 64 * (i / 2));
    };
    if (leader) {
      hopper::store_wait_read<0>();  // the boxes are free
      if (kBackward) {
        hopper::barrier_expect(shared.arrived(group), kResultBoxes * kBoxBytes);
        for_boxes(
            [&](uint32_t box, int x, int y) { hopper::load_box(box, &launch.y, shared.arrived(group), x, y, 0); });
      }
    }
    __syncwarp();  // products need whole warps
    accumulate<kBackward>(upper, lower, shared, position, launch.depth_tiles);
    position.advance(launch.depth_tiles);  // the other warpgroup's tile
    if constexpr (kBackward) {
      hopper::barrier_wait(shared.arrived(group), turn);
      turn ^= 1;
    } else {
      hopper::sync(kFree + group, 128);
    }
    write_box<kBackward, 0>(upper, shared.box(group, 0));
    write_box<kBackward, 1>(upper, shared.box(group, 1));
    write_box<kBackward, 0>(lower, shared.box(group, 2));
    write_box<kBackward, 1>(lower, shared.box(group, 3));
    hopper::async_proxy_fence();
    hopper::sync(kFull + group, 128);
    if (leader) {
      for_boxes([&](uint32_t box, int x, int y) { hopper::store_box(&launch.c, box, x, y, 0); });
      hopper::store_commit();
    }
    __syncwarp();
  }
  if (leader) hopper::store_wait_all();
}

template <bool kBackward>
__global__ void __launch_bounds__(kThreads, 1) __cluster_dims__(kClusterBlocks, 1, 1)
    multiply_mlp(const __grid_constant__ Launch launch) {
  extern __shared__ unsigned char memory[];
  const Shared shared(memory);
  const int rank = static_cast<int>(hopper::cluster_rank());
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      hopper::barrier_init(shared.full(i), 1);
      hopper::barrier_init(shared.empty(i), kClusterBlocks * 4);  // a warpgroup of each block
    }
    for (int i = 0; i < kConsumers; ++i) hopper::barrier_init(shared.arrived(i), 1);
    hopper::barrier_init_fence();
  }
  hopper::cluster_barrier();
  if (threadIdx.x < 128) {
    hopper::fewer_registers<tiles::kProducerRegisters>();
    if (threadIdx.x == 0) produce<kBackward>(launch, shared, rank);
  } else {
    hopper::more_registers<tiles::kConsumerRegisters>();
    consume<kBackward>(launch, shared, rank, threadIdx.x / 128 - 1);
  }
  hopper::cluster_barrier();  // the other block may still write to this block's memory and barriers
}

int tiles_of(int64_t size, int side) { return static_cast<int>((size + side - 1) / side); }

template <bool kBackward>
cudaError_t launch_product(const MlpShape& shape, const __nv_bfloat16* a, const __nv_bfloat16* b,
                           const __nv_bfloat16* y, __nv_bfloat16* c, cudaStream_t stream) {
  const auto [rows, columns, depth] = shape;
  if (rows == 0) return cudaSuccess;
  if (rows < 0 || rows > std::numeric_limits<int>::max() - kClusterBlocks * kRows || columns <= 0 || depth <= 0) {
    return cudaErrorInvalidValue;
  }
  const auto kernel = multiply_mlp<kBackward>;
  int clusters = 0;
  cudaError_t error = resident_clusters(reinterpret_cast<const void*>(kernel), &clusters);
  Launch launch = {};
  const int height = static_cast<int>(rows);
  const auto make_map = [&](const void* data, int map_rows, int map_columns, CUtensorMap* map) {
    if (error == cudaSuccess) {
      error = make_tensor_map({.data = data, .row_stride = map_columns, .rows = map_rows, .columns = map_columns}, map);
    }
  };
  make_map(a, height, depth, &launch.a);
  make_map(b, kBackward ? depth : columns, kBackward ? columns : depth, &launch.b);
  make_map(c, height, columns, &launch.c);
  if (kBackward) make_map(y, height, columns, &launch.y);
  if (error != cudaSuccess) return error;
  launch.column_tiles = tiles_of(columns, kColumns);
  launch.tiles = tiles_of(rows, kClusterBlocks * kRows) * launch.column_tiles;
  launch.depth_tiles = tiles_of(depth, kDepth);
  const int blocks = kClusterBlocks * std::min(launch.tiles, clusters);
  kernel<<<blocks, kThreads, kSharedBytes, stream>>>(launch);
  return cudaGetLastError();
}

}  // namespace

cudaError_t mlp_up(const MlpShape& shape, const __nv_bfloat16* x, const __nv_bfloat16* w, __nv_bfloat16* y,
                   cudaStream_t stream) {
  return launch_product<false>(shape, x, w, nullptr, y, stream);
}

cudaError_t mlp_down_backward(const MlpShape& shape, const __nv_bfloat16* g, const __nv_bfloat16* w,
                              const __nv_bfloat16* y, __nv_bfloat16* dx, cudaStream_t stream) {
  return launch_product<true>(shape, g, w, y, dx, stream);
}

}  // namespace gluon::lab::cuda
