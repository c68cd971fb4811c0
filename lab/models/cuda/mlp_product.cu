#include "lab/models/cuda/mlp_product.h"

#include <algorithm>
#include <limits>

#include "gluon/kernels/cuda/tensor_map.h"
#include "gluon/kernels/cuda/tile_ring.cuh"

// A persistent product as in symmetric_product_kernel.cuh: warpgroups 1 and 2 feed the tensor cores, one lane of
// warpgroup 0 asks the copy engine for what they need. A finished tile waits in their registers, and leaves 64 columns
// at a time beside the products of the next one; its function is computed there, too, where the tensor cores do not
// wait.

namespace gluon::lab::cuda {
namespace {

using namespace gluon::cuda;  // packs, reductions, tiles

using tiles::kBlockRows;
using tiles::kBoxBytes;
using tiles::kClusterBlocks;
using tiles::kDepth;
using tiles::kThreads;
using tiles::kTile;
using tiles::Position;
using tiles::Shared;

struct Launch {
  CUtensorMap a, b, c, y;
  int tiles, column_tiles, depth_tiles;
};

// Barriers, + warpgroup: its threads agree; a box is free; a box is full.
constexpr int kAgree = 1, kFree = 3, kFull = 5;

// First entries of a cluster's tile. Columns run fastest: what the multiprocessors share at a time stays in L2.
struct Tile {
  int row, column;

  __device__ Tile(const Launch& launch, int number)
      : row(kTile * (number / launch.column_tiles)), column(kTile * (number % launch.column_tiles)) {}
};

__device__ __forceinline__ float relu(float x) { return x < 0 ? 0 : x; }  // NaN passes

__device__ __forceinline__ float root(float x) {
  float result;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

__device__ __forceinline__ uint32_t squared_relu(uint32_t pair) {
  const float2 x = hopper::unpack_brain(pair);
  return hopper::pack_brain(2 * relu(x.x) * relu(x.x), 2 * relu(x.y) * relu(x.y));
}

__device__ __forceinline__ uint32_t turned_back(uint32_t gradient, uint32_t square) {
  const float2 g = hopper::unpack_brain(gradient), y = hopper::unpack_brain(square);
  return hopper::pack_brain(g.x * root(8 * y.x), g.y * root(8 * y.y));
}

// A finished tile of a warpgroup, 64 x 256, on its way. Boxes of 64 columns take turns in two places of shared memory;
// on the way back y's entries come there before, one box ahead, and the results take their place.
template <bool kBackward>
class Pending {
 public:
  static constexpr int kBoxes = 4;

  __device__ explicit Pending(const Launch& launch) : launch_(launch) {}

  __device__ __forceinline__ bool has_box() const { return box_ < kBoxes; }

  __device__ static bool is_leader() { return threadIdx.x % 128 == 0; }

  // Whether all boxes are due before the end of a tile of that depth, those of the second warpgroup a step later, too.
  __device__ static bool fits_beside(int depth_tiles) { return depth_tiles > kBoxes + kBackward; }

  // Whether a box is to be stored after `done` of `all` products: all of them after two thirds. On the way back none is
  // at once, since y's entries are still on theirs.
  __device__ __forceinline__ bool is_due(int done, int all) const {
    return has_box() && 6 * done >= (box_ + kBackward) * all;
  }

  __device__ __forceinline__ void take(const float (&acc)[128], const Shared& shared, int group, int row,
                                       int column) {
#pragma unroll
    for (int i = 0; i < 64; ++i) entries_[i] = hopper::pack_brain(acc[2 * i], acc[2 * i + 1]);
    row_ = row;
    column_ = column;
    box_ = 0;
    if (kBackward && is_leader()) load_squares(shared, group);
    __syncwarp();
  }

  // The whole warpgroup, when a box is left.
  __device__ __forceinline__ void store_next(const Shared& shared, int group) {
    const uint32_t place = place_of(shared, group);
    if constexpr (kBackward) {
      hopper::barrier_wait(arrival_of(shared, group), turn_ / 2 % 2);
    } else {
      if (is_leader()) hopper::store_wait_read<1>();
      hopper::meet(kFree + group, 128);
    }
    if (box_ == 0) write_box<0>(place);
    if (box_ == 1) write_box<1>(place);
    if (box_ == 2) write_box<2>(place);
    if (box_ == 3) write_box<3>(place);
    hopper::async_proxy_fence();
    hopper::meet(kFull + group, 128);
    const int column = column_ + 64 * box_;
    ++box_;
    ++turn_;
    if (is_leader()) {
      hopper::store_box(&launch_.c, place, column, row_, 0);
      hopper::store_commit();
      if (kBackward && has_box()) load_squares(shared, group);
    }
    __syncwarp();
  }

 private:
  __device__ uint32_t place_of(const Shared& shared, int group) const {
    return shared.results(group) + turn_ % 2 * kBoxBytes;
  }
  __device__ uint32_t arrival_of(const Shared& shared, int group) const {
    return shared.other_barrier(2 * group + turn_ % 2);
  }

  // Of the next box. The place is free when the box before the last one has left it.
  __device__ void load_squares(const Shared& shared, int group) {
    hopper::store_wait_read<1>();
    const uint32_t barrier = arrival_of(shared, group);
    hopper::barrier_expect(barrier, kBoxBytes);
    hopper::load_box(place_of(shared, group), &launch_.y, barrier, column_ + 64 * box_, row_, 0);
  }

  template <int kBox>
  __device__ __forceinline__ void write_box(uint32_t place) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const uint32_t address = tiles::box_address(place, 16 * warp + lane % 16, 2 * q + lane / 16);
      uint32_t squares[4], r[4];
      if constexpr (kBackward) hopper::load_matrices(address, squares);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        uint32_t entry = entries_[16 * kBox + 4 * q + i];
        asm volatile("" : "+r"(entry));  // its function is computed here, not kept in registers of its own
        r[i] = kBackward ? turned_back(entry, squares[i]) : squared_relu(entry);
      }
      hopper::store_matrices(address, r);
    }
  }

  const Launch& launch_;
  uint32_t entries_[64];
  int row_, column_;
  int box_ = kBoxes;   // the next one to store, kBoxes after the last
  uint32_t turn_ = 0;  // boxes stored so far
};

template <bool kBackward>
__device__ __forceinline__ void produce(const Launch& launch, const Shared& shared, int rank) {
  constexpr bool kAcrossB = kBackward;
  Position position;
  for (int number = tiles::first_tile(); number < launch.tiles; number += tiles::tile_stride()) {
    const Tile tile(launch, number);
    const int row = tile.row + kBlockRows * rank, column = tile.column + kBlockRows * rank;
#pragma unroll 1
    for (int k = 0; k < launch.depth_tiles; ++k) {
      tiles::acquire(shared, position, tiles::kSlotBytes);
      const uint32_t slot = shared.slot(position), full = shared.full_at(position);
      const int depth = k * kDepth;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int first = column + 64 * i;
        hopper::load_box(slot + tiles::kOperandA + i * kBoxBytes, &launch.a, full, depth, row + 64 * i, 0);
        hopper::load_box_to_both(slot + (2 * rank + i) * kBoxBytes, &launch.b, full, kAcrossB ? first : depth,
                                 kAcrossB ? depth : first, 0);
      }
      position.advance();
    }
  }
}

template <bool kBackward>
__device__ __forceinline__ void consume(const Launch& launch, const Shared& shared, int rank, int group) {
  using Inputs = tiles::Inputs<__nv_bfloat16, kTile, false, kBackward>;
  const bool long_enough = Pending<kBackward>::fits_beside(launch.depth_tiles);
  float acc[128];
  Pending<kBackward> pending(launch);
  Position position;
  for (int number = tiles::first_tile();; number += tiles::tile_stride()) {
    // Where the next tile is late there is time now; a short one leaves none later.
    while (pending.has_box()) {
      const bool ready = long_enough && number < launch.tiles &&
                         hopper::barrier_test(shared.full_at(position), position.parity);
      if (hopper::warpgroup_all(kAgree + group, ready)) break;
      pending.store_next(shared, group);
    }
    if (number >= launch.tiles) break;
    tiles::accumulate<Inputs>(acc, pending, shared, position, tiles::kOperandA + group * kBoxBytes,
                              launch.depth_tiles, group, [] {});
    const Tile tile(launch, number);
    pending.take(acc, shared, group, tile.row + kBlockRows * rank + 64 * group, tile.column);
  }
  if (Pending<kBackward>::is_leader()) hopper::store_wait_all();
}

template <bool kBackward>
__global__ void __launch_bounds__(kThreads, 1) __cluster_dims__(kClusterBlocks, 1, 1)
    multiply_mlp(const __grid_constant__ Launch launch) {
  extern __shared__ unsigned char memory[];
  const Shared shared(memory);
  const int rank = static_cast<int>(hopper::cluster_rank());
  if (threadIdx.x == 0) {
    tiles::initialise(shared);
    for (int i = 0; i < 2 * tiles::kConsumers; ++i) hopper::barrier_init(shared.other_barrier(i), 1);
    hopper::barrier_init_fence();
  }
  hopper::cluster_barrier();
  if (threadIdx.x < 128) {
    hopper::fewer_registers<24>();  // 24 + 2 x 240 = 3 x 168: more than a block was given would wait forever
    if (threadIdx.x == 0) produce<kBackward>(launch, shared, rank);
  } else {
    hopper::more_registers<240>();
    consume<kBackward>(launch, shared, rank, threadIdx.x / 128 - 1);
  }
  __syncwarp();
  hopper::cluster_barrier();  // the other block may still write here, and tell this one's barriers
}

int tiles_of(int64_t size, int side) { return static_cast<int>((size + side - 1) / side); }

template <bool kBackward>
cudaError_t launch_product(const MlpShape& shape, const __nv_bfloat16* a, const __nv_bfloat16* b,
                           const __nv_bfloat16* y, __nv_bfloat16* c, cudaStream_t stream) {
  const auto [rows, columns, depth] = shape;
  if (rows == 0) return cudaSuccess;
  if (rows < 0 || rows > std::numeric_limits<int>::max() - kTile || columns <= 0 || depth <= 0) {
    return cudaErrorInvalidValue;
  }
  const auto kernel = multiply_mlp<kBackward>;
  int clusters = 0;
  cudaError_t error = resident_clusters(reinterpret_cast<const void*>(kernel), kClusterBlocks, kThreads,
                                        tiles::kSharedBytes, &clusters);
  Launch launch = {};
  const int height = static_cast<int>(rows);
  const auto make_map = [&](const void* data, int map_rows, int map_columns, CUtensorMap* map) {
    if (error == cudaSuccess) {
      error = make_tensor_map(
          {.data = data, .row_stride = map_columns, .rows = map_rows, .columns = map_columns}, map);
    }
  };
  make_map(a, height, depth, &launch.a);
  make_map(b, kBackward ? depth : columns, kBackward ? columns : depth, &launch.b);
  make_map(c, height, columns, &launch.c);
  if (kBackward) make_map(y, height, columns, &launch.y);
  if (error != cudaSuccess) return error;
  launch.column_tiles = tiles_of(columns, kTile);
  launch.tiles = tiles_of(rows, kTile) * launch.column_tiles;
  launch.depth_tiles = tiles_of(depth, kDepth);
  const int blocks = kClusterBlocks * std::min(launch.tiles, clusters);
  kernel<<<blocks, kThreads, tiles::kSharedBytes, stream>>>(launch);
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
