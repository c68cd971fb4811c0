#include "tests/kernels/orthogonalize_reference.h"

#include <algorithm>
#include <numeric>

namespace gluon::kernel_check {
namespace {

cublasHandle_t cublas() {
  static const cublasHandle_t handle = [] {
    cublasHandle_t made = nullptr;
    require(cublasCreate(&made));
    return made;
  }();
  return handle;
}

using kernel_check::multiply;

cublasOperation_t operation(bool transpose) { return transpose ? CUBLAS_OP_T : CUBLAS_OP_N; }

void multiply(int count, int m, int n, int k, double alpha, const bf16* a, bool transpose_a, const bf16* b,
              bool transpose_b, double beta, bf16* c) {
  const float alpha_f = float(alpha), beta_f = float(beta);
  require(cublasGemmStridedBatchedEx(cublas(), operation(transpose_b), operation(transpose_a), n, m, k, &alpha_f, b,
                                     CUDA_R_16BF, transpose_b ? k : n, int64_t(k) * n, a, CUDA_R_16BF,
                                     transpose_a ? m : k, int64_t(m) * k, &beta_f, c, CUDA_R_16BF, n, int64_t(m) * n,
                                     count, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

template <typename Real> __global__ void add_to_diagonal(Real* matrices, int side, double value) {
  const int64_t at = int64_t(blockIdx.x) * side * side + int64_t(threadIdx.x + blockIdx.y * blockDim.x) * (side + 1);
  if (threadIdx.x + blockIdx.y * blockDim.x < side) matrices[at] = Real(float(matrices[at]) + value);
}

// The iteration as published for quintics, X (count, m, n) in place: R = X X^T, Z without its multiple a of I, and
// X <- a X + Z X, on the smaller side.
template <typename Real> void iterate(int count, int m, int n, const std::vector<PolarStep>& steps, Array<Real>& x) {
  const bool wide = m <= n;
  const int k = wide ? m : n, l = wide ? n : m;
  Array<Real> r(int64_t(count) * k * k), w(r.size()), z(r.size()), y(x.size());
  const auto copy = [](const Array<Real>& from, Array<Real>& to) {
    require(cudaMemcpy(to.data(), from.data(), from.size() * sizeof(Real), cudaMemcpyDeviceToDevice));
  };
  for (const PolarStep& step : steps) {
    multiply(count, k, k, l, 1, x.data(), !wide, x.data(), wide, 0, r.data());
    copy(r, z);
    double constant = 0;
    for (const ExpandedSquare& square : expand(step)) {
      copy(z, w);
      if (constant != 0) {
        add_to_diagonal<<<dim3(count, (k + 255) / 256), 256>>>(w.data(), k, constant);
        require(cudaGetLastError());
      }
      copy(r, z);
      multiply(count, k, k, k, square.square, w.data(), false, w.data(), false, square.addend, z.data());
      constant = square.constant;
    }
    copy(x, y);
    if (wide) {
      multiply(count, m, n, k, 1, z.data(), false, y.data(), false, constant, x.data());
    } else {
      multiply(count, m, n, k, 1, y.data(), false, z.data(), false, constant, x.data());
    }
  }
}

// X X^T or X^T X, the smaller.
Vector gram_of(const Vector& x, int count, int m, int n) {
  const bool wide = m <= n;
  const int k = std::min(m, n);
  Array<double> device(x), r(int64_t(count) * k * k);
  multiply(count, k, k, std::max(m, n), 1, device.data(), !wide, device.data(), wide, 0, r.data());
  return r.get();
}

}  // namespace

void multiply(int count, int m, int n, int k, double alpha, const double* a, bool transpose_a, const double* b,
              bool transpose_b, double beta, double* c) {
  require(cublasDgemmStridedBatched(cublas(), operation(transpose_b), operation(transpose_a), n, m, k, &alpha, b,
                                    transpose_b ? k : n, int64_t(k) * n, a, transpose_a ? m : k, int64_t(m) * k, &beta,
                                    c, n, int64_t(m) * n, count));
}

Vector gaussian(int64_t size, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  Vector values(size);
  for (double& value : values) value = normal(engine);
  return values;
}

double distance(const Vector& x, const Vector& y, double unit) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += (x[i] - y[i]) * (x[i] - y[i]);
  return std::isnan(sum) ? INFINITY : std::sqrt(sum / unit);
}

double orthogonality_error(const Vector& x, int count, int m, int n) {
  const int k = std::min(m, n);
  const Vector gram = gram_of(x, count, m, n);
  Vector identity(gram.size(), 0.0);
  for (int64_t i = 0; i < int64_t(count) * k; ++i) identity[i * k + i % k] = 1;
  return distance(gram, identity, double(count) * k);
}

Vector gather(const std::vector<__half>& stack, int count, int m, int n, int64_t row_stride) {
  Vector dense;
  dense.reserve(int64_t(count) * m * n);
  for (int64_t i = 0; i < int64_t(count) * m; ++i) {
    for (int j = 0; j < n; ++j) dense.push_back(__half2float(stack[i * row_stride + j]));
  }
  return dense;
}

Vector scaled_by_frobenius(Vector x, int count, double factor) {
  const size_t size = x.size() / count;
  for (int c = 0; c < count; ++c) {
    double sum = 0;
    for (size_t i = c * size; i < (c + 1) * size; ++i) sum += x[i] * x[i];
    for (size_t i = c * size; i < (c + 1) * size; ++i) x[i] *= sum == 0 ? 0 : factor / std::sqrt(sum);
  }
  return x;
}

Vector exact_polar(const Vector& x, int count, int m, int n) {
  Array<double> device(scaled_by_frobenius(x, count, 1 / 1.01));
  iterate(count, m, n, quintic_steps(polar_express_coefficients({.steps = 24, .lower = 1e-7})), device);
  return device.get();
}

Vector bf16_polar_express(const Vector& x, int count, int m, int n) {
  std::vector<bf16> start;
  for (const double value : scaled_by_frobenius(x, count, 1 / 1.01)) start.push_back(rounded<bf16>(value));
  Array<bf16> device(start);
  iterate(count, m, n, quintic_steps(polar_express_coefficients({.steps = 5})), device);
  return doubles(device.get());
}

Vector same_polynomials(const Vector& x, int count, int m, int n, const std::vector<PolarStep>& steps) {
  Vector scaled = scaled_by_frobenius(x, count, 1);
  const Vector gram = gram_of(scaled, count, m, n);
  const int64_t size = int64_t(m) * n, square = int64_t(gram.size()) / count;
  for (int c = 0; c < count; ++c) {
    const double* of = gram.data() + c * square;
    const double bound = 1.01 * std::sqrt(std::sqrt(std::inner_product(of, of + square, of, 0.0)));
    for (int64_t i = 0; i < size; ++i) scaled[c * size + i] /= bound == 0 ? 1 : bound;
  }
  Array<double> device(scaled);
  iterate(count, m, n, steps, device);
  return device.get();
}

}  // namespace gluon::kernel_check
