#include "gluon/kernels/cuda/norms.h"

#include <algorithm>

#include "gluon/kernels/cuda/reduce.cuh"
#include "gluon/kernels/cuda/vector_io.cuh"

namespace gluon::cuda {
namespace {

// Each kernel leaves Partials, a fixed number per matrix that depends on its shape alone; finish_kernel adds them up.
// 4 bytes an entry, 8 for a difference. H200, share of the copy bound of 4.2 TB/s:
//
//                          max_entry, euclidean    rows           columns
//   48 x 768 x 768         33 us, 81 %             41 us, 65 %    40 us, 67 %
//   24 x 2048 x 8192       355 us, 108 %           376 us, 102 %  396 us, 97 %
constexpr int kThreads = 256;
constexpr int kTile = 4096;  // entries: 4 packs of 4 a thread in flight
constexpr int64_t kMostPartials = 256;

struct Partial {
  double sum, largest;
};

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

__device__ void leave(double sum, double largest, Partial* partial) {
  sum = reduce_block<kThreads>(sum, Add());
  largest = reduce_block<kThreads>(largest, Larger());
  if (threadIdx.x == 0) *partial = {sum, largest};
}

template <int W>
__device__ __forceinline__ Pack<W> difference(const float* x, const float* y, int64_t at) {
  Pack<W> pack = load<W>(x + at);
  if (y == nullptr) return pack;
  const Pack<W> minus = load<W>(y + at);
#pragma unroll
  for (int j = 0; j < W; ++j) pack.v[j] -= minus.v[j];
  return pack;
}

// ---- entries: block b of a matrix takes `tiles` neighbouring tiles.

template <bool Squares, int W>
__device__ __forceinline__ void entries(const float* x, const float* y, int64_t begin, int64_t end,
                                        double& sum, float& largest) {
  constexpr int kPacks = kTile / (kThreads * W);
  for (int64_t tile = begin; tile < end; tile += kTile) {
    Pack<W> p[kPacks];
#pragma unroll
    for (int u = 0; u < kPacks; ++u) {
      const int64_t at = tile + (u * kThreads + static_cast<int>(threadIdx.x)) * W;
      p[u] = at < end ? difference<W>(x, y, at) : Pack<W>{};
    }
#pragma unroll
    for (int u = 0; u < kPacks; ++u) {
#pragma unroll
      for (int j = 0; j < W; ++j) {
        const float size = fabsf(p[u].v[j]);
        largest = Larger()(size, largest);
        sum = Squares ? fma(static_cast<double>(size), static_cast<double>(size), sum) : sum + size;
      }
    }
  }
}

template <bool Squares>
__global__ void __launch_bounds__(kThreads)
    entries_kernel(const float* x, const float* y, int64_t size, int partials, int64_t tiles, Partial* out) {
  const int64_t matrix = blockIdx.x / partials;
  const int64_t begin = blockIdx.x % partials * tiles * kTile;
  const int64_t end = min(size, begin + tiles * kTile);
  const float* of = x + matrix * size;
  const float* minus = y == nullptr ? nullptr : y + matrix * size;
  double sum = 0;
  float largest = 0;
  if (size % 4 == 0 && is_aligned(x, 16) && is_aligned(y, 16)) {
    entries<Squares, 4>(of, minus, begin, end, sum, largest);
  } else {
    entries<Squares, 1>(of, minus, begin, end, sum, largest);
  }
  leave(sum, largest, out + blockIdx.x);
}

// ---- rows: `Lanes` neighbouring threads share a row, block b of a matrix takes `each` neighbouring rows.

template <int W>
__device__ __forceinline__ double squares_of_row(const float* x, const float* y, int64_t columns, int lane,
                                                 int lanes) {
  double sum = 0;
#pragma unroll 4
  for (int64_t column = lane * W; column < columns; column += lanes * W) {
    const Pack<W> p = difference<W>(x, y, column);
#pragma unroll
    for (int j = 0; j < W; ++j) sum = fma(static_cast<double>(p.v[j]), static_cast<double>(p.v[j]), sum);
  }
  return sum;
}

template <int Lanes>
__global__ void __launch_bounds__(kThreads)
    rows_kernel(const float* x, const float* y, int64_t rows, int64_t columns, int partials, int64_t each,
                Partial* out) {
  const int64_t matrix = blockIdx.x / partials;
  const int64_t first = blockIdx.x % partials * each;
  const int64_t end = min(rows, first + each);
  const float* of = x + matrix * rows * columns;
  const float* minus = y == nullptr ? nullptr : y + matrix * rows * columns;
  const bool wide = columns % 4 == 0 && is_aligned(x, 16) && is_aligned(y, 16);
  const int lane = threadIdx.x % Lanes;
  double sum = 0, largest = 0;
  // All threads make the same number of turns: the reductions need every lane.
  for (int64_t group = first; group < end; group += kThreads / Lanes) {
    const int64_t row = group + threadIdx.x / Lanes;
    double squares = 0;
    if (row < end) {
      const int64_t start = row * columns;
      const float* take = minus == nullptr ? nullptr : minus + start;
      squares = wide ? squares_of_row<4>(of + start, take, columns, lane, Lanes)
                     : squares_of_row<1>(of + start, take, columns, lane, Lanes);
    }
    if constexpr (Lanes > 32) {
      squares = reduce_block<Lanes>(squares, Add());
    } else {
      squares = reduce_lanes<Lanes>(squares, Add());
    }
    const double length = lane == 0 ? sqrt(squares) : 0;
    sum += length;
    largest = Larger()(length, largest);
  }
  leave(sum, largest, out + blockIdx.x);
}

// ---- columns: a block is 64 threads wide, W columns each, and 4 threads tall; it takes `each` rows of its columns.

constexpr int kTall = 4;
constexpr int kAcross = kThreads / kTall;

template <int W>
__global__ void __launch_bounds__(kThreads)
    column_squares_kernel(const float* x, const float* y, int64_t rows, int64_t columns, int tiles,
                          int chunks, int64_t each, double* out) {
  __shared__ double shared[kTall][kAcross * W];
  const int tile = blockIdx.x % tiles;
  const int chunk = blockIdx.x / tiles % chunks;
  const int64_t matrix = blockIdx.x / tiles / chunks;
  const int across = threadIdx.x % kAcross, down = threadIdx.x / kAcross;
  const int64_t column = (static_cast<int64_t>(tile) * kAcross + across) * W;
  const int64_t end = min(rows, (chunk + 1) * each);
  const int64_t start = matrix * rows * columns;
  double sum[W] = {};
  if (column < columns) {
#pragma unroll 4
    for (int64_t row = chunk * each + down; row < end; row += kTall) {
      const Pack<W> p = difference<W>(x, y, start + row * columns + column);
#pragma unroll
      for (int j = 0; j < W; ++j)
        sum[j] = fma(static_cast<double>(p.v[j]), static_cast<double>(p.v[j]), sum[j]);
    }
  }
#pragma unroll
  for (int j = 0; j < W; ++j) shared[down][across * W + j] = sum[j];
  __syncthreads();
  for (int i = threadIdx.x; i < kAcross * W; i += kThreads) {
    const int64_t at = static_cast<int64_t>(tile) * kAcross * W + i;
    if (at >= columns) break;
    double total = 0;
    for (int k = 0; k < kTall; ++k) total += shared[k][i];
    out[(matrix * chunks + chunk) * columns + at] = total;
  }
}

// One column a thread: the chunks of its squares, then its length. Squares (b, chunks, n).
__global__ void __launch_bounds__(kThreads)
    column_lengths_kernel(const double* squares, int64_t columns, int chunks, int partials, Partial* out) {
  const int64_t matrix = blockIdx.x / partials;
  const int64_t column = static_cast<int64_t>(blockIdx.x % partials) * kThreads + threadIdx.x;
  double sum = 0;
  if (column < columns) {
#pragma unroll 8
    for (int chunk = 0; chunk < chunks; ++chunk) sum += squares[(matrix * chunks + chunk) * columns + column];
  }
  const double length = sqrt(sum);
  leave(length, length, out + blockIdx.x);
}

// ---- inner products: as entries, with a second factor.

template <int W, typename T>
__device__ __forceinline__ double products_of(const float* x, const T* y, int64_t begin, int64_t end) {
  double sum = 0;
#pragma unroll 4
  for (int64_t at = begin + threadIdx.x * W; at < end; at += kThreads * W) {
    const Pack<W> p = load<W>(x + at), q = load<W>(y + at);
#pragma unroll
    for (int j = 0; j < W; ++j) sum = fma(static_cast<double>(p.v[j]), static_cast<double>(q.v[j]), sum);
  }
  return sum;
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    products_kernel(const float* x, const T* y, int64_t size, int partials, int64_t tiles, Partial* out) {
  const int64_t start = blockIdx.x / partials * size;
  const int64_t begin = blockIdx.x % partials * tiles * kTile;
  const int64_t end = min(size, begin + tiles * kTile);
  const bool wide = size % 4 == 0 && is_aligned(x, 16) && is_aligned(y, 4 * sizeof(T));
  const double sum = wide ? products_of<4>(x + start, y + start, begin, end)
                          : products_of<1>(x + start, y + start, begin, end);
  leave(sum, 0.0, out + blockIdx.x);
}

enum class Finish { kBoth, kRoot, kSum };

// One block per matrix.
template <Finish How>
__global__ void __launch_bounds__(kThreads)
    finish_kernel(const Partial* partials, int64_t each, float factor, float* norms, float* dual_norms) {
  const Partial* of = partials + blockIdx.x * each;
  double sum = 0, largest = 0;
  for (int64_t i = threadIdx.x; i < each; i += kThreads) {
    sum += of[i].sum;
    largest = Larger()(of[i].largest, largest);
  }
  sum = reduce_block<kThreads>(sum, Add());
  largest = reduce_block<kThreads>(largest, Larger());
  if (threadIdx.x != 0) return;
  if constexpr (How == Finish::kRoot) sum = largest = sqrt(sum);
  if (norms != nullptr) norms[blockIdx.x] = static_cast<float>(largest);
  if (dual_norms != nullptr) dual_norms[blockIdx.x] = static_cast<float>(factor * sum);
}

// How a batch is cut; everything follows from the shape.
struct Cut {
  int64_t each = 1;      // tiles, or rows, of one partial
  int64_t partials = 0;  // per matrix
  int64_t chunks = 0;    // of rows, for columns
  int lanes = 0;         // threads that share a row, for rows
};

Cut cut_entries(int64_t size) {
  const int64_t tiles = ceil_div(size, kTile);
  Cut cut;
  cut.each = std::max<int64_t>(ceil_div(tiles, kMostPartials), 1);
  cut.partials = ceil_div(tiles, cut.each);
  return cut;
}

Cut cut_rows(int64_t rows, int64_t columns) {
  Cut cut;
  cut.lanes = columns >= 16384 ? kThreads : columns >= 128 ? 32 : columns >= 16 ? 8 : 1;
  const int64_t together = kThreads / cut.lanes;
  cut.each = together * std::max<int64_t>(ceil_div(rows, 4 * kMostPartials * together), 1);
  cut.partials = ceil_div(rows, cut.each);
  return cut;
}

Cut cut_columns(int64_t rows, int64_t columns) {
  Cut cut;
  cut.each = std::max<int64_t>(ceil_div(rows, kMostPartials), 64);
  cut.chunks = ceil_div(rows, cut.each);
  cut.partials = ceil_div(columns, kThreads);
  return cut;
}

Cut cut_for(MatrixNorm norm, int64_t rows, int64_t columns) {
  if (norm == MatrixNorm::kRows) return cut_rows(rows, columns);
  if (norm == MatrixNorm::kColumns) return cut_columns(rows, columns);
  return cut_entries(rows * columns);
}

void launch_rows(const NormBatch& b, const Cut& cut, Partial* partials, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(b.count * cut.partials);
  const auto launch = [&](auto kernel) {
    kernel<<<blocks, kThreads, 0, stream>>>(b.x, b.y, b.rows, b.columns, static_cast<int>(cut.partials),
                                            cut.each, partials);
  };
  if (cut.lanes == kThreads) return launch(rows_kernel<kThreads>);
  if (cut.lanes == 32) return launch(rows_kernel<32>);
  if (cut.lanes == 8) return launch(rows_kernel<8>);
  launch(rows_kernel<1>);
}

void launch_columns(const NormBatch& b, const Cut& cut, Partial* partials, cudaStream_t stream) {
  double* squares = reinterpret_cast<double*>(partials + b.count * cut.partials);
  const bool wide = b.columns % 4 == 0 && is_aligned(b.x, 16) && is_aligned(b.y, 16);
  const int64_t tiles = ceil_div(b.columns, kAcross * (wide ? 4 : 1));
  const auto kernel = wide ? column_squares_kernel<4> : column_squares_kernel<1>;
  kernel<<<static_cast<unsigned>(b.count * cut.chunks * tiles), kThreads, 0, stream>>>(
      b.x, b.y, b.rows, b.columns, static_cast<int>(tiles), static_cast<int>(cut.chunks), cut.each, squares);
  column_lengths_kernel<<<static_cast<unsigned>(b.count * cut.partials), kThreads, 0, stream>>>(
      squares, b.columns, static_cast<int>(cut.chunks), static_cast<int>(cut.partials), partials);
}

}  // namespace

size_t norm_workspace(MatrixNorm norm, int64_t count, int64_t rows, int64_t columns) {
  const Cut cut = cut_for(norm, rows, columns);
  return count * (cut.partials * sizeof(Partial) + cut.chunks * columns * sizeof(double));
}

cudaError_t matrix_norms(MatrixNorm norm, const NormBatch& b, cudaStream_t stream) {
  if (b.count == 0) return cudaSuccess;
  if (b.count < 0 || b.rows < 0 || b.columns < 0) return cudaErrorInvalidValue;
  Cut cut = cut_for(norm, b.rows, b.columns);
  auto* partials = static_cast<Partial*>(b.workspace);
  const int64_t size = b.rows * b.columns;
  if (size == 0) {
    cut.partials = 0;
  } else {
    if (b.x == nullptr || partials == nullptr) return cudaErrorInvalidValue;
    if (norm == MatrixNorm::kRows) {
      launch_rows(b, cut, partials, stream);
    } else if (norm == MatrixNorm::kColumns) {
      launch_columns(b, cut, partials, stream);
    } else {
      const auto kernel = norm == MatrixNorm::kEuclidean ? entries_kernel<true> : entries_kernel<false>;
      kernel<<<static_cast<unsigned>(b.count * cut.partials), kThreads, 0, stream>>>(
          b.x, b.y, size, static_cast<int>(cut.partials), cut.each, partials);
    }
  }
  const auto finish =
      norm == MatrixNorm::kEuclidean ? finish_kernel<Finish::kRoot> : finish_kernel<Finish::kBoth>;
  finish<<<static_cast<unsigned>(b.count), kThreads, 0, stream>>>(partials, cut.partials, 1, b.norms,
                                                                  b.dual_norms);
  return cudaGetLastError();
}

size_t inner_product_workspace(int64_t count, int64_t size) {
  return count * cut_entries(size).partials * sizeof(Partial);
}

cudaError_t inner_products(const float* x, const void* y, ElementType type, int64_t count, int64_t size,
                           float factor, float* products, void* workspace, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  if (count < 0 || size < 0 || products == nullptr) return cudaErrorInvalidValue;
  if (size > 0 && (x == nullptr || y == nullptr || workspace == nullptr)) return cudaErrorInvalidValue;
  const Cut cut = cut_entries(size);
  auto* partials = static_cast<Partial*>(workspace);
  const auto launch = [&]<typename T>() {
    products_kernel<T><<<static_cast<unsigned>(count * cut.partials), kThreads, 0, stream>>>(
        x, static_cast<const T*>(y), size, static_cast<int>(cut.partials), cut.each, partials);
  };
  if (size > 0) {
    if (type == ElementType::kFloat32) launch.operator()<float>();
    if (type == ElementType::kFloat16) launch.operator()<__half>();
    if (type == ElementType::kBFloat16) launch.operator()<__nv_bfloat16>();
  }
  finish_kernel<Finish::kSum><<<static_cast<unsigned>(count), kThreads, 0, stream>>>(
      partials, cut.partials, factor, nullptr, products);
  return cudaGetLastError();
}

}  // namespace gluon::cuda
