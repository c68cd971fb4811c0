#include "benchmarks/exactness.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "gluon/checkpoint/safetensors.h"
#include "gluon/core/check.h"
#include "gluon/lmo/orthogonalize/orthogonalizer.h"

namespace gluon::benchmarks {
namespace {

std::vector<Shape> distinct(const std::vector<Shape>& shapes) {
  std::vector<Shape> once;
  for (const Shape& shape : shapes) {
    if (std::find(once.begin(), once.end(), shape) == once.end()) once.push_back(shape);
  }
  return once;
}

TestMatrix with_svd(const at::Tensor& gradient) {
  const at::Tensor wide = gradient.to(at::kDouble);
  return {gradient, make_orthogonalizer("svd")->polar(wide.unsqueeze(0))[0]};
}

// Orthonormal columns, (rows, columns) with rows >= columns.
at::Tensor random_frame(int64_t rows, int64_t columns) {
  return std::get<0>(at::linalg_qr(at::randn({rows, columns}, at::kDouble)));
}

}  // namespace

std::vector<TestMatrix> gaussian_matrices(const std::vector<Shape>& shapes) {
  std::vector<TestMatrix> matrices;
  for (const auto& [rows, cols] : distinct(shapes)) matrices.push_back(with_svd(at::randn({rows, cols})));
  return matrices;
}

std::vector<TestMatrix> gaussian_signs(const std::vector<Shape>& shapes) {
  std::vector<TestMatrix> matrices;
  for (const auto& [rows, cols] : distinct(shapes)) {
    const at::Tensor gradient = at::randn({rows, cols});
    matrices.push_back({gradient, gradient.sign().to(at::kDouble)});
  }
  return matrices;
}

std::vector<TestMatrix> one_over_i_matrices(const std::vector<Shape>& shapes) {
  std::vector<TestMatrix> matrices;
  for (const auto& [rows, cols] : distinct(shapes)) {
    const int64_t side = std::min(rows, cols);
    const at::Tensor left = random_frame(rows, side), right = random_frame(cols, side).t();
    const at::Tensor values = at::arange(1, side + 1, at::kDouble).reciprocal();
    matrices.push_back({(left * values).matmul(right).to(at::kFloat), left.matmul(right)});
  }
  return matrices;
}

std::vector<TestMatrix> recorded_matrices(const std::string& path) {
  std::vector<TestMatrix> matrices;
  for (const auto& [name, tensor] : read_safetensors(path).tensors) {
    const bool momentum = name.find("momentum/") != std::string::npos;
    const bool embedding = name.find("wte") != std::string::npos;
    if (momentum && !embedding && tensor.dim() == 2) matrices.push_back(with_svd(tensor.to(at::kFloat)));
  }
  GLUON_CHECK(!matrices.empty(), "bench step: ", path, " holds no momentum of a matrix");
  return matrices;
}

double error_of(const Directions& directions, const std::vector<TestMatrix>& matrices) {
  std::vector<at::Tensor> gradients;
  for (const TestMatrix& matrix : matrices) gradients.push_back(matrix.gradient);
  const std::vector<at::Tensor> found = directions(gradients);
  double sum = 0;
  for (std::size_t i = 0; i < matrices.size(); ++i) {
    const at::Tensor& exact = matrices[i].exact;
    const at::Tensor error = found[i].to(at::kCPU).to(at::kDouble) - exact;
    sum += error.square().sum().item<double>() / exact.square().sum().item<double>();
  }
  return std::sqrt(sum / static_cast<double>(matrices.size()));
}

}  // namespace gluon::benchmarks
