#include "lab/models/cuda/mlp_product.h"

#include <algorithm>
#include <limits>

#include "gluon/kernels/cuda/tensor_map.h"
#include "gluon/kernels/cuda/tile_ring.cuh"

// A persistent product as in gluon/kernels/cuda/symmetric_product_kernel.cuh: warpgroups 1 and 2 feed the tensor cores,
// one lane of warpgroup 0 requests their operands from the copy engine. A finished tile waits in registers and is
// stored 64 columns at a time during the products of the next one. Its function is computed then, too, so that the
// tensor cores do not wait for it. Blocks wait only for the other block of their cluster, which starts together with
// them: no cooperative launch is needed.

namespace gluon::lab::cuda {
namespace {

using namespace gluon::cuda;

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

// Barriers, one per warpgroup (id + group): its threads agree; its box is free; its box is full.
constexpr int kAgree = 1, kFree = 3, kFull = 5;

// The first row and column of a cluster's tile. Columns run fastest, so that the rows of A that the multiprocessors
// share at a time stay in L2.
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
  const float2 x = hopper::unpack_bfloat16(pair);
  return hopper::pack_bfloat16(2 * relu(x.x) * relu(x.x), 2 * relu(x.y) * relu(x.y));
}

__device__ __forceinline__ uint32_t mlp_gradient(uint32_t gradient, uint32_t square) {
  const float2 g = hopper::unpack_bfloat16(gradient), y = hopper::unpack_bfloat16(square);
  return hopper::pack_bfloat16(g.x * root(8 * y.x), g.y * root(8 * y.y));
}

// A finished tile of a warpgroup, 64 x 256, that is being stored. Boxes of 64 columns alternate between two buffers in
// shared memory. In the backward pass the entries of y are loaded into them one box ahead, and the results replace
// them.
template <bool kBackward> class Pending {
 public:
  static constexpr int kBoxes = 4;

  __device__ explicit Pending(const Launch& launch) : launch_(launch) {}

  __device__ __forceinline__ bool has_box() const { return box_ < kBoxes; }

  __device__ static bool is_leader() { return threadIdx.x % 128 == 0; }

  // Whether all boxes are due before the end of a tile of that depth, also in the second warpgroup, one step later.
  __device__ static bool fits_beside(int depth_tiles) { return depth_tiles > kBoxes + kBackward; }

  // Whether to store a box after `done` of `all` products. All boxes are stored after two thirds of them. In the
  // backward pass none is stored at once, since the entries of y are still being loaded.
  __device__ __forceinline__ bool is_due(int done, int all) const {
    return has_box() && 6 * done >= (box_ + kBackward) * all;
  }

  __device__ __forceinline__ void take(const float (&acc)[128], const Shared& shared, int group, int row, int column) {
#pragma unroll
    for (int i = 0; i < 64; ++i) entries_[i] = hopper::pack_bfloat16(acc[2 * i], acc[2 * i + 1]);
    row_ = row;
    column_ = column;
    box_ = 0;
    if (kBackward && is_leader()) load_squares(shared, group);
    __syncwarp();
  }

  // Called by the whole warpgroup, when a box is left.
  __device__ __forceinline__ void store_next(const Shared& shared, int group) {
    const uint32_t buffer = buffer_of(shared, group);
    if constexpr (kBackward) {
      hopper::barrier_wait(arrival_of(shared, group), turn_ / 2 % 2);
    } else {
      if (is_leader()) hopper::store_wait_read<1>();
      hopper::sync(kFree + group, 128);
    }
    if (box_ == 0) write_box<0>(buffer);
    if (box_ == 1) write_box<1>(buffer);
    if (box_ == 2) write_box<2>(buffer);
    if (box_ == 3) write_box<3>(buffer);
    hopper::async_proxy_fence();
    hopper::sync(kFull + group, 128);
    const int column = column_ + 64 * box_;
    ++box_;
    ++turn_;
    if (is_leader()) {
      hopper::store_box(&launch_.c, buffer, column, row_, 0);
      hopper::store_commit();
      if (kBackward && has_box()) load_squares(shared, group);
    }
    __syncwarp();
  }

 private:
  __device__ uint32_t buffer_of(const Shared& shared, int group) const {
    return shared.results(group) + turn_ % 2 * kBoxBytes;
  }
  __device__ uint32_t arrival_of(const Shared& shared, int group) const {
    return shared.other_barrier(2 * group + turn_ % 2);
  }

  // Loads the entries of y for the next box. Its buffer is free when the box before the last one has been sent.
  __device__ void load_squares(const Shared& shared, int group) {
    hopper::store_wait_read<1>();
    const uint32_t barrier = arrival_of(shared, group);
    hopper::barrier_expect(barrier, kBoxBytes);
    hopper::load_box(buffer_of(shared, group), &launch_.y, barrier, column_ + 64 * box_, row_, 0);
  }

  template <int kBox> __device__ __forceinline__ void write_box(uint32_t buffer) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const uint32_t address = tiles::box_address(buffer, 16 * warp + lane % 16, 2 * q + lane / 16);
      uint32_t squares[4], r[4];
      if constexpr (kBackward) hopper::load_matrices(address, squares);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        uint32_t entry = entries_[16 * kBox + 4 * q + i];
        asm volatile("" : "+r"(entry));  // computes its function here rather than in registers held from before
        r[i] = kBackward ? mlp_gradient(entry, squares[i]) : squared_relu(entry);
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
    // Store now while the next tile is not ready, or if it is too short to store during it.
    while (pending.has_box()) {
      const bool ready =
          long_enough && number < launch.tiles && hopper::barrier_test(shared.full_at(position), position.parity);
      if (hopper::warpgroup_all(kAgree + group, ready)) break;
      pending.store_next(shared, group);
    }
    if (number >= launch.tiles) break;
    tiles::accumulate<Inputs>(acc, pending, shared, position, tiles::kOperandA + group * kBoxBytes, launch.depth_tiles,
                              group, [] {});
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
  if (rows < 0 || rows > std::numeric_limits<int>::max() - kTile || columns <= 0 || depth <= 0) {
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
