// What the checks and timings of the half precision products share: error handling, device buffers, random matrices,
// and references by cuBLAS: products and iterations in float64 (and bf16).

#pragma once

#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

#include "gluon/kernels/cuda/orthogonalize.h"
#include "gluon/lmo/orthogonalize/coefficients.h"

#define CUDA_OK(call)                                                                              \
  do {                                                                                             \
    const cudaError_t cuda_ok_error = (call);                                                      \
    if (cuda_ok_error != cudaSuccess) {                                                            \
      std::printf("%s:%d %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(cuda_ok_error)); \
      std::exit(1);                                                                                \
    }                                                                                              \
  } while (false)

#define CUBLAS_OK(call)                                                                \
  do {                                                                                 \
    const cublasStatus_t cublas_ok_status = (call);                                    \
    if (cublas_ok_status != CUBLAS_STATUS_SUCCESS) {                                   \
      std::printf("%s:%d %s: %d\n", __FILE__, __LINE__, #call, int(cublas_ok_status)); \
      std::exit(1);                                                                    \
    }                                                                                  \
  } while (false)

namespace support {

template <typename T>
class Buffer {
 public:
  explicit Buffer(int64_t size) : size_(size) { CUDA_OK(cudaMalloc(&data_, size * sizeof(T) + 256)); }
  explicit Buffer(const std::vector<T>& host) : Buffer(static_cast<int64_t>(host.size())) { upload(host); }
  ~Buffer() { cudaFree(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void upload(const std::vector<T>& host) {
    CUDA_OK(cudaMemcpy(data_, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  std::vector<T> download() const {
    std::vector<T> host(size_);
    CUDA_OK(cudaDeviceSynchronize());
    CUDA_OK(cudaMemcpy(host.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost));
    return host;
  }
  void fill(int byte) { CUDA_OK(cudaMemset(data_, byte, size_ * sizeof(T))); }
  T* get() const { return data_; }
  int64_t size() const { return size_; }

 private:
  T* data_ = nullptr;
  int64_t size_;
};

/// Row-major C (m, n) = alpha op(A) op(B) + beta C, `count` dense matrices, in Real = double or __nv_bfloat16.
template <typename Real>
void multiply(cublasHandle_t handle, int count, int m, int n, int k, double alpha, const Real* a,
              bool transpose_a, const Real* b, bool transpose_b, double beta, Real* c) {
  const cublasOperation_t op_a = transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t op_b = transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  const int lda = transpose_a ? m : k, ldb = transpose_b ? k : n;
  const int64_t size_a = int64_t(m) * k, size_b = int64_t(k) * n, size_c = int64_t(m) * n;
  if constexpr (sizeof(Real) == 8) {
    CUBLAS_OK(cublasDgemmStridedBatched(handle, op_b, op_a, n, m, k, &alpha, b, ldb, size_b, a, lda, size_a,
                                        &beta, c, n, size_c, count));
  } else {
    const float alpha_f = float(alpha), beta_f = float(beta);
    CUBLAS_OK(cublasGemmStridedBatchedEx(handle, op_b, op_a, n, m, k, &alpha_f, b, CUDA_R_16BF, ldb, size_b,
                                         a, CUDA_R_16BF, lda, size_a, &beta_f, c, CUDA_R_16BF, n, size_c,
                                         count, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
  }
}

struct Step {
  double a, b, c;
};

/// The quintic iteration as published, X (count, m, n) in place: R = X X^T, Z = b R + c R R, X <- a X + Z X on the
/// smaller side.
template <typename Real>
void iterate(cublasHandle_t handle, int count, int m, int n, const std::vector<Step>& steps,
             Buffer<Real>& x) {
  const bool wide = m <= n;
  const int k = wide ? m : n, l = wide ? n : m;
  Buffer<Real> r(int64_t(count) * k * k), z(int64_t(count) * k * k), y(x.size());
  for (const Step& step : steps) {
    multiply(handle, count, k, k, l, 1, x.get(), !wide, x.get(), wide, 0, r.get());
    CUDA_OK(cudaMemcpy(z.get(), r.get(), r.size() * sizeof(Real), cudaMemcpyDeviceToDevice));
    multiply(handle, count, k, k, k, step.c, r.get(), false, r.get(), false, step.b, z.get());
    CUDA_OK(cudaMemcpy(y.get(), x.get(), x.size() * sizeof(Real), cudaMemcpyDeviceToDevice));
    if (wide) {
      multiply(handle, count, m, n, k, 1, z.get(), false, y.get(), false, step.a, x.get());
    } else {
      multiply(handle, count, m, n, k, 1, y.get(), false, z.get(), false, step.a, x.get());
    }
  }
}

inline std::vector<double> gaussian(int64_t size, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<double> values(size);
  for (double& value : values) value = normal(engine);
  return values;
}

/// |x - y| / |y|; NaN counts as infinite.
inline double relative_error(const std::vector<double>& x, const std::vector<double>& y) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    difference += (x[i] - y[i]) * (x[i] - y[i]);
    size += y[i] * y[i];
  }
  const double error = std::sqrt(difference / (size == 0 ? 1 : size));
  return std::isnan(error) ? INFINITY : error;
}

/// The (count, m, n) entries of a strided half precision stack.
inline std::vector<double> gather(const std::vector<__half>& stack, int count, int m, int n,
                                  int64_t row_stride) {
  std::vector<double> dense;
  dense.reserve(int64_t(count) * m * n);
  for (int64_t i = 0; i < int64_t(count) * m; ++i) {
    for (int j = 0; j < n; ++j) dense.push_back(__half2float(stack[i * row_stride + j]));
  }
  return dense;
}

/// |x - y| / sqrt(side), root mean square over `count` matrices; NaN counts as infinite.
inline double distance(const std::vector<double>& x, const std::vector<double>& y, int count, int side) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += (x[i] - y[i]) * (x[i] - y[i]);
  return std::isnan(sum) ? INFINITY : std::sqrt(sum / (double(count) * side));
}

/// x with the Frobenius norm of each of its `count` matrices set to `factor`; zero stays zero.
inline std::vector<double> scaled_by_frobenius(std::vector<double> x, int count, double factor) {
  const size_t size = x.size() / count;
  for (int c = 0; c < count; ++c) {
    double sum = 0;
    for (size_t i = c * size; i < (c + 1) * size; ++i) sum += x[i] * x[i];
    for (size_t i = c * size; i < (c + 1) * size; ++i) x[i] *= sum == 0 ? 0 : factor / std::sqrt(sum);
  }
  return x;
}

inline std::vector<Step> steps_of(const std::vector<gluon::Quintic>& rows) {
  std::vector<Step> steps;
  for (const gluon::Quintic& row : rows) steps.push_back({row.a, row.b, row.c});
  return steps;
}

/// X X^T or X^T X, the smaller.
inline std::vector<double> gram_of(cublasHandle_t handle, const std::vector<double>& x, int count, int m,
                                   int n) {
  const bool wide = m <= n;
  const int k = std::min(m, n);
  Buffer<double> device(x), r(int64_t(count) * k * k);
  multiply(handle, count, k, k, std::max(m, n), 1, device.get(), !wide, device.get(), wide, 0, r.get());
  return r.download();
}

inline double orthogonality_error(cublasHandle_t handle, const std::vector<double>& x, int count, int m,
                                  int n) {
  const int k = std::min(m, n);
  const std::vector<double> gram = gram_of(handle, x, count, m, n);
  std::vector<double> identity(gram.size(), 0.0);
  for (int64_t i = 0; i < int64_t(count) * k; ++i) identity[i * k + i % k] = 1;
  return distance(gram, identity, count, k);
}

inline std::vector<double> exact_polar(cublasHandle_t handle, const std::vector<double>& x, int count, int m,
                                       int n) {
  Buffer<double> device(scaled_by_frobenius(x, count, 1 / 1.01));
  iterate(handle, count, m, n, steps_of(gluon::polar_express_coefficients({.steps = 24, .lower = 1e-7})),
          device);
  return device.download();
}

inline std::vector<double> bf16_polar_express(cublasHandle_t handle, const std::vector<double>& x, int count,
                                              int m, int n) {
  const std::vector<double> scaled = scaled_by_frobenius(x, count, 1 / 1.01);
  std::vector<__nv_bfloat16> rounded;
  for (const double value : scaled) rounded.push_back(__float2bfloat16(float(value)));
  Buffer<__nv_bfloat16> device(rounded);
  iterate(handle, count, m, n, steps_of(gluon::polar_express_coefficients({.steps = 5})), device);
  std::vector<double> result;
  for (const __nv_bfloat16 value : device.download()) result.push_back(__bfloat162float(value));
  return result;
}

/// Our polynomials and start bound in float64.
inline std::vector<double> same_polynomials(cublasHandle_t handle, const std::vector<double>& x, int count,
                                            int m, int n, const std::vector<gluon::Quintic>& rows) {
  std::vector<double> scaled = scaled_by_frobenius(x, count, 1);
  const std::vector<double> gram = gram_of(handle, scaled, count, m, n);
  const int64_t size = int64_t(m) * n, square = int64_t(gram.size()) / count;
  for (int c = 0; c < count; ++c) {
    const double* of = gram.data() + c * square;
    const double bound = 1.01 * std::sqrt(std::sqrt(std::inner_product(of, of + square, of, 0.0)));
    for (int64_t i = 0; i < size; ++i) scaled[c * size + i] /= bound == 0 ? 1 : bound;
  }
  Buffer<double> device(scaled);
  iterate(handle, count, m, n, steps_of(rows), device);
  return device.download();
}

}  // namespace support

int check_targets();  // orthogonalize_check_targets.cu; how many failed
