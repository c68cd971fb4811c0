// Hopper's instructions for products in half precision, one function each: barriers in shared memory, tensor copies
// (TMA), warpgroup products (wgmma), 8 x 8 matrix moves, and the order between blocks. Compiles for sm_90a only.

#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace gluon::cuda::hopper {

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// ---- barriers in shared memory

__device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/// Makes initialised barriers visible to the copy engine.
__device__ __forceinline__ void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/// Arrives at the same barrier of block `rank` of the cluster.
__device__ __forceinline__ void barrier_arrive(uint32_t barrier, uint32_t rank) {
  asm volatile(
      "{\n.reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n}\n" ::"r"(barrier),
      "r"(rank)
      : "memory");
}

/// Arrives, and makes the barrier wait for `bytes` of copies.
__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

/// Waits for the end of the phase with this parity.
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred p;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "@p bra done;\n"
      "bra again;\n"
      "done:\n}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

/// Whether that phase has ended, without waiting.
__device__ __forceinline__ bool barrier_test(uint32_t barrier, uint32_t parity) {
  uint32_t ended;
  asm volatile(
      "{\n.reg .pred p;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.b32 %0, 1, 0, p;\n}\n"
      : "=r"(ended)
      : "r"(barrier), "r"(parity)
      : "memory");
  return ended != 0;
}

/// Whether `value` holds in all 128 threads of a warpgroup.
__device__ __forceinline__ bool warpgroup_all(int id, bool value) {
  uint32_t all;
  asm volatile(
      "{\n.reg .pred p, q;\n"
      "setp.ne.b32 p, %1, 0;\n"
      "barrier.cta.red.and.pred q, %2, 128, p;\n"
      "selp.b32 %0, 1, 0, q;\n}\n"
      : "=r"(all)
      : "r"(static_cast<uint32_t>(value)), "r"(id)
      : "memory");
  return all != 0;
}

/// Barrier `id` (1..15) of `threads` threads: waits for all of them to call this or arrive(). Both are for whole warps,
/// and so is cluster_barrier(): they bring the lanes of a warp together first, which may come from different branches.
__device__ __forceinline__ void sync(int id, int threads) {
  __syncwarp();
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

__device__ __forceinline__ void arrive(int id, int threads) {
  __syncwarp();
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- clusters

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// Waits for all threads of all blocks of the cluster.
__device__ __forceinline__ void cluster_barrier() {
  __syncwarp();
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;\n" ::
          : "memory");
}

// ---- tensor copies

/// Loads the map's box at (x, y, z); entries outside the tensor are zero.
__device__ __forceinline__ void load_box(uint32_t target, const CUtensorMap* map, uint32_t barrier, int x, int y,
                                         int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, "
      "%5}], "
      "[%2];" ::"r"(target),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z)
      : "memory");
}

/// Like load_box(), but into the same address of both blocks of a cluster of two; completes on the barrier of each.
__device__ __forceinline__ void load_box_to_both(uint32_t target, const CUtensorMap* map, uint32_t barrier, int x,
                                                 int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(target),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "h"(static_cast<uint16_t>(3))
      : "memory");
}

/// Stores the map's box at (x, y, z); entries outside the tensor are not stored.
__device__ __forceinline__ void store_box(const CUtensorMap* map, uint32_t source, int x, int y, int z) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
               "r"(source), "r"(x), "r"(y), "r"(z)
               : "memory");
}

__device__ __forceinline__ void store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

/// Waits until at most kPending groups of stores still read shared memory.
template <int kPending> __device__ __forceinline__ void store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

/// Waits until all stores of this thread are in global memory.
__device__ __forceinline__ void store_wait_all() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

/// Orders ordinary shared memory accesses of this thread before later ones of the copy engine.
__device__ __forceinline__ void async_proxy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---- 8 x 8 matrices between registers and shared memory, 16 bytes per row. Lane l passes the address of row l % 8 of
// matrix l / 8, and holds the entries (l / 4, 2 (l % 4)) and (l / 4, 2 (l % 4) + 1) of each matrix.

__device__ __forceinline__ void load_matrices(uint32_t address, uint32_t (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ void store_matrices(uint32_t address, const uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(r[0]), "r"(r[1]),
               "r"(r[2]), "r"(r[3])
               : "memory");
}

/// Like store_matrices(), each matrix transposed.
__device__ __forceinline__ void store_transposed(uint32_t address, const uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(r[0]),
               "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

__device__ __forceinline__ uint32_t pack_half(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

__device__ __forceinline__ float2 unpack_half(uint32_t pair) {
  return __half22float2(*reinterpret_cast<const __half2*>(&pair));
}

__device__ __forceinline__ uint32_t pack_bfloat16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

__device__ __forceinline__ float2 unpack_bfloat16(uint32_t pair) {
  return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)};
}

/// *target += (a, b), in the L2 cache; the address is divisible by 8.
__device__ __forceinline__ void add_pair(float* target, float a, float b) {
  asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};" ::"l"(target), "f"(a), "f"(b) : "memory");
}

// ---- order between blocks: the copy engine of one block loads what that of another has stored

/// After store_wait_all(): increments the counter, ordered after this thread's stores and those it synchronised with.
__device__ __forceinline__ void publish(int* counter) {
  asm volatile("fence.proxy.async;" ::: "memory");
  asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(counter) : "memory");
}

/// Whether the counter has reached `count`; if so, later loads of the copy engine see what was published.
__device__ __forceinline__ bool has_reached(const int* counter, int count) {
  int seen;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
  asm volatile("fence.proxy.async;" ::: "memory");
  return seen >= count;
}

// ---- warpgroup products, for whole warps, too. No __syncwarp() here: the compiler puts one before the products
// itself, and with a second one it may find too few registers and serialize them (its message C7511).

template <int kRegisters> __device__ __forceinline__ void more_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters> __device__ __forceinline__ void fewer_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

__device__ __forceinline__ void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int kPending> __device__ __forceinline__ void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

/// The descriptor of an operand in 128-byte swizzled boxes of 64 x 64. Along K: rows of 128 bytes, 8 rows are 1024
/// bytes. Along M or N (transposed): 8 rows of K are 1024 bytes, the next 64 of M or N are one box of 8192 bytes later.
__device__ __forceinline__ uint64_t operand(uint32_t address, bool transposed) {
  const uint64_t leading = transposed ? 8192 >> 4 : 1, stride = 1024 >> 4, swizzle_128 = 1;
  return ((address & 0x3ffff) >> 4) | leading << 16 | stride << 32 | swizzle_128 << 62;
}

#define GLUON_ACC_4(acc, i) "+f"(acc[i]), "+f"(acc[i + 1]), "+f"(acc[i + 2]), "+f"(acc[i + 3])
#define GLUON_ACC_16(acc, i) \
  GLUON_ACC_4(acc, i), GLUON_ACC_4(acc, i + 4), GLUON_ACC_4(acc, i + 8), GLUON_ACC_4(acc, i + 12)
#define GLUON_ACC_64(acc, i) \
  GLUON_ACC_16(acc, i), GLUON_ACC_16(acc, i + 16), GLUON_ACC_16(acc, i + 32), GLUON_ACC_16(acc, i + 48)

#define GLUON_REGISTERS_64                                                           \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define GLUON_MULTIPLY_128(types)                                                  \
  asm volatile(                                                                    \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"                                 \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." types " {" GLUON_REGISTERS_64 \
      "}, "                                                                        \
      "%64, %65, p, 1, 1, %67, %68;\n}\n"                                          \
      : GLUON_ACC_64(acc, 0)                                                       \
      : "l"(a), "l"(b), "r"(accumulate), "n"(kTransposeA), "n"(kTransposeB))
#define GLUON_MULTIPLY_256(types)                                                              \
  asm volatile(                                                                                \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"                                            \
      "wgmma.mma_async.sync.aligned.m64n256k16.f32." types " {" GLUON_REGISTERS_64             \
      ", "                                                                                     \
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "       \
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "       \
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, " \
      "%111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, "   \
      "%125, %126, %127}, %128, %129, p, 1, 1, %131, %132;\n}\n"                               \
      : GLUON_ACC_64(acc, 0), GLUON_ACC_64(acc, 64)                                            \
      : "l"(a), "l"(b), "r"(accumulate), "n"(kTransposeA), "n"(kTransposeB))

/// acc (64, columns) += op(A) (64, 16) op(B) (16, columns) of __half or __nv_bfloat16; accumulate = 0 starts from zero.
template <typename Element, int kColumns, int kTransposeA, int kTransposeB>
__device__ __forceinline__ void multiply(float (&acc)[128], uint64_t a, uint64_t b, int accumulate) {
  static_assert(kColumns == 128 || kColumns == 256);
  constexpr bool kBFloat16 = std::is_same_v<Element, __nv_bfloat16>;
  if constexpr (kColumns == 256 && kBFloat16) {
    GLUON_MULTIPLY_256("bf16.bf16");
  } else if constexpr (kColumns == 256) {
    GLUON_MULTIPLY_256("f16.f16");
  } else if constexpr (kBFloat16) {
    GLUON_MULTIPLY_128("bf16.bf16");
  } else {
    GLUON_MULTIPLY_128("f16.f16");
  }
}

/// The same for 128 columns alone.
template <typename Element, int kTransposeA, int kTransposeB>
__device__ __forceinline__ void multiply(float (&acc)[64], uint64_t a, uint64_t b, int accumulate) {
  if constexpr (std::is_same_v<Element, __nv_bfloat16>) {
    GLUON_MULTIPLY_128("bf16.bf16");
  } else {
    GLUON_MULTIPLY_128("f16.f16");
  }
}

#undef GLUON_MULTIPLY_256
#undef GLUON_MULTIPLY_128
#undef GLUON_REGISTERS_64
#undef GLUON_ACC_64
#undef GLUON_ACC_16
#undef GLUON_ACC_4

/// Keeps the compiler from reading accumulators before products_wait().
template <int kSize> __device__ __forceinline__ void products_fence(float (&acc)[kSize]) {
#pragma unroll
  for (int i = 0; i < kSize; ++i) asm volatile("" : "+f"(acc[i])::"memory");
}

}  // namespace gluon::cuda::hopper
