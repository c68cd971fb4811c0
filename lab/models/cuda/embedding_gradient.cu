#include "lab/models/cuda/embedding_gradient.h"

#include <cmath>

#include "gluon/kernels/cuda/vector_io.cuh"

namespace gluon::lab::cuda {
namespace {

using namespace gluon::cuda;

// Equal tokens are adjacent after sorting. For each chunk of sorted tokens, sum_chunks() sums the run of equal tokens
// at its start. A row is then the sum of its tokens before the first chunk boundary and of the chunks that start with
// its token. A warp has 384 columns of a chunk or a row, a lane three packs of four: enough loads in flight to keep the
// memory busy.
constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kChunk = 32;
constexpr int kPacks = 3, kColumns = kPacks * 32 * 4;

__device__ int warp_number() { return static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32; }
__device__ int lane_number() { return static_cast<int>(threadIdx.x) % 32; }
__device__ int first_column() { return static_cast<int>(blockIdx.y) * kColumns + 4 * lane_number(); }

// A lane's columns of a row, as far as the row has them.
struct Part {
  Pack<4> packs[kPacks] = {};

  template <typename T> __device__ void add(const T* row, int column, int width) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (column + 128 * p >= width) continue;
      const Pack<4> pack = load<4>(row + column + 128 * p);
#pragma unroll
      for (int j = 0; j < 4; ++j) packs[p].v[j] += pack.v[j];
    }
  }

  __device__ void multiply(float factor) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
#pragma unroll
      for (int j = 0; j < 4; ++j) packs[p].v[j] *= factor;
    }
  }

  __device__ void write(float* row, int column, int width) const {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (column + 128 * p < width) store<4>(row + column + 128 * p, packs[p]);
    }
  }
};

// Adds the sorted tokens first, first + 1, ... below last.
__device__ void add_tokens(Part& part, const EmbeddingGradient& work, int first, int last, int column) {
#pragma unroll 4
  for (int i = first; i < last; ++i) part.add(work.gradient + work.order[i] * work.width, column, work.width);
}

__device__ float* sums_of(const EmbeddingGradient& work, int chunk) {
  return work.sums + static_cast<int64_t>(chunk) * work.width;
}

__global__ void __launch_bounds__(kThreads) sum_chunks(const __grid_constant__ EmbeddingGradient work) {
  const int chunk = warp_number(), first = chunk * kChunk, column = first_column();
  if (first >= work.tokens) return;
  const int mine = first + lane_number();
  const bool same = mine < work.tokens && work.sorted[mine] == work.sorted[first];
  const int last = first + __popc(__ballot_sync(~0u, same));
  Part sum;
  add_tokens(sum, work, first, last, column);
  sum.write(sums_of(work, chunk), column, work.width);
}

// firsts[v] = the number of tokens below v.
__global__ void __launch_bounds__(kThreads) find_rows(const __grid_constant__ EmbeddingGradient work) {
  const int row = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (row > work.vocabulary) return;
  int below = 0;
  for (int left = work.tokens; left > 0;) {
    const int half = left / 2;
    const bool is_below = work.sorted[below + half] < row;
    if (is_below) below += half + 1;
    left = is_below ? left - half - 1 : half;
  }
  work.firsts[row] = below;
}

__global__ void __launch_bounds__(kThreads) add_rows(const __grid_constant__ EmbeddingGradient work) {
  const int row = warp_number(), column = first_column();
  if (row >= work.vocabulary) return;
  const int64_t start = static_cast<int64_t>(row) * work.width;
  Part sum;
  sum.add(work.head + start, column, work.width);
  sum.multiply(*work.scale);
  const int first = work.firsts[row], last = work.firsts[row + 1];
  const int next_chunk = (first + kChunk - 1) / kChunk, end_chunk = (last + kChunk - 1) / kChunk;
  add_tokens(sum, work, first, min(last, next_chunk * kChunk), column);
#pragma unroll 4
  for (int chunk = next_chunk; chunk < end_chunk; ++chunk) sum.add(sums_of(work, chunk), column, work.width);
  const bool all_inside = row > 0 || (first == 0 && work.firsts[work.vocabulary] == work.tokens);
  if (!all_inside) sum.multiply(NAN);
  sum.write(work.out + start, column, work.width);
}

// A grid with a warp for each of `count` rows and each slice of columns.
dim3 warps_for(int64_t count, int width) {
  return {static_cast<unsigned>((count + kWarps - 1) / kWarps),
          static_cast<unsigned>((width + kColumns - 1) / kColumns)};
}

}  // namespace

int64_t embedding_chunks(int64_t tokens) { return (tokens + kChunk - 1) / kChunk; }

cudaError_t embedding_gradient(const EmbeddingGradient& work, cudaStream_t stream) {
  const bool shaped = work.tokens >= 0 && work.vocabulary > 0 && work.width > 0 && work.width % 4 == 0;
  const bool has_tokens = are_given({work.gradient, work.sums}, 16) && are_given({work.sorted, work.order});
  if (!shaped || !are_given({work.head, work.out}, 16) || !are_given({work.scale, work.firsts}) ||
      (work.tokens > 0 && !has_tokens)) {
    return cudaErrorInvalidValue;
  }
  if (work.tokens > 0) {
    sum_chunks<<<warps_for(embedding_chunks(work.tokens), work.width), kThreads, 0, stream>>>(work);
  }
  find_rows<<<static_cast<unsigned>(work.vocabulary / kThreads + 1), kThreads, 0, stream>>>(work);
  add_rows<<<warps_for(work.vocabulary, work.width), kThreads, 0, stream>>>(work);
  return cudaGetLastError();
}

}  // namespace gluon::lab::cuda
