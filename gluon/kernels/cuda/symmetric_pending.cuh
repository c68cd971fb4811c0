// How a block of symmetric_product_kernel.cuh writes its results: as tiles of C, or added to a target.

#pragma once

#include "gluon/kernels/cuda/symmetric_tiles.cuh"
#include "gluon/kernels/cuda/tile_ring.cuh"
#include "gluon/kernels/cuda/verdict.h"

namespace gluon::cuda::tiles {

// A finished tile that is being stored in half precision, 64 columns at a time. It waits in registers while the tensor
// cores compute the next tile.
struct Pending {
  static constexpr int kBoxes = 4;

  const Launch& launch;
  uint32_t entries[64];
  Tile tile;
  float move;        // the factor of a target
  int box = kBoxes;  // the next one to store, kBoxes after the last

  __device__ explicit Pending(const Launch& launch) : launch(launch) {}

  __device__ __forceinline__ void take(const float (&acc)[128], const Tile& finished, float target_move) {
    tile = finished;
    move = target_move;
    box = 0;
#pragma unroll
    for (int i = 0; i < 64; ++i) entries[i] = hopper::pack_half(acc[2 * i], acc[2 * i + 1]);
  }

  // Whether to store a box after `done` of `all` products. All boxes are stored after two thirds of them.
  __device__ __forceinline__ bool is_due(int done, int all) const { return box < kBoxes && 6 * done >= box * all; }

  // Called by the whole warpgroup, when a box is left.
  __device__ __forceinline__ void store_next(const Shared& shared, int group) {
    const Arguments& product = launch.product[tile.product()];
    const int rank = static_cast<int>(hopper::cluster_rank());
    if (product.targets != nullptr) {
      const int row = tile.row() + kBlockRows * rank + 64 * group;
      if (box == 0) add_box<0>(product, row);
      if (box == 1) add_box<1>(product, row);
      if (box == 2) add_box<2>(product, row);
      if (box == 3) add_box<3>(product, row);
    } else {
      const uint32_t results = shared.results(group);
      const bool mirrored = is_mirrored(product, tile, rank, box);
      hopper::sync(kResultsFree + group, kResultThreads);
      if (box == 0) write_box<0>(results, mirrored);
      if (box == 1) write_box<1>(results, mirrored);
      if (box == 2) write_box<2>(results, mirrored);
      if (box == 3) write_box<3>(results, mirrored);
      hopper::async_proxy_fence();
      hopper::arrive(kResultsFull + group, kResultThreads);
    }
    if (++box == 2 && is_half(product, tile, rank)) box = kBoxes;
  }

 private:
  // Each entry of the target gets one addition, so the order of the tiles changes no bit.
  template <int kBox> __device__ __forceinline__ void add_box(const Arguments& product, int row) const {
    const int lane = threadIdx.x % 32, line = row + threadIdx.x / 32 % 4 * 16 + lane / 4;
    const int column = tile.column() + 64 * kBox;
    if (column >= product.columns || skips_step(product.verdict)) return;
    float* target =
        product.targets[tile.matrix()] + static_cast<int64_t>(line) * product.columns + column + 2 * (lane % 4);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (line + 8 * half >= product.rows) return;
#pragma unroll
      for (int block = 0; block < 8; ++block) {
        const float2 value = hopper::unpack_half(entries[16 * kBox + 2 * block + half]);
        hopper::add_pair(target + 8 * block, move * value.x, move * value.y);
      }
      target += 8 * product.columns;
    }
  }

  template <int kBox> __device__ __forceinline__ void write_box(uint32_t results, bool mirrored) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      uint32_t r[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) r[i] = entries[16 * kBox + 4 * q + i];
      hopper::store_matrices(box_address(results, 16 * warp + lane % 16, 2 * q + lane / 16), r);
      if (mirrored) {
        const int line = 16 * q + lane / 16 * 8 + lane % 8;
        hopper::store_transposed(box_address(results + kBoxBytes, line, 2 * warp + lane / 8 % 2), r);
      }
    }
  }
};

// Runs in the warp that sends a warpgroup's boxes to C and to the mirrored position, and then publishes the tile. Only
// this warp waits for the copies to end.
__device__ __forceinline__ void send_results(const Launch& launch, const Shared& shared, int rank, int group) {
  const uint32_t results = shared.results(group);
  const bool leader = threadIdx.x % 32 == 0;
  int segment = 0;
  for (int number = first_tile(); number < launch.tiles; number += tile_stride()) {
    const Tile tile = find_tile(launch, number, segment);
    const Arguments& product = launch.product[tile.product()];
    if (product.targets != nullptr) continue;
    const int row = tile.row() + kBlockRows * rank + 64 * group;
    const int boxes = is_half(product, tile, rank) ? 2 : Pending::kBoxes;
#pragma unroll 1
    for (int box = 0; box < boxes; ++box) {
      hopper::arrive(kResultsFree + group, kResultThreads);
      hopper::sync(kResultsFull + group, kResultThreads);
      if (!leader) continue;
      const CUtensorMap* map = &launch.maps[product.c];
      const int column = tile.column() + 64 * box;
      hopper::store_box(map, results, column, row, tile.matrix());
      if (is_mirrored(product, tile, rank, box)) {
        hopper::store_box(map, results + kBoxBytes, row, column, tile.matrix());
      }
      hopper::store_commit();
      hopper::store_wait_read<0>();
    }
    if (!leader || product.done == nullptr) continue;
    hopper::store_wait_all();
    hopper::publish(product.done + tile.matrix());
  }
  if (leader) hopper::store_wait_all();
}

}  // namespace gluon::cuda::tiles
