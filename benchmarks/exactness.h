// How far directions are from the exact ones, on matrices whose exact direction is known.
//
//   Gaussian   one matrix of each shape of the model; singular values within a factor of about the smaller side
//   recorded   momenta of a training run: a few large singular values over a long tail, down to 1e-5 of the largest
//   1/i        one matrix of each shape with the singular values 1, 1/2, 1/3, ...
//
// Gaussian matrices flatter short iterations: their singular values are all large. Training meets the other two.

#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace gluon::benchmarks {

struct Shape {
  int64_t rows;
  int64_t cols;
  bool operator==(const Shape&) const = default;
};

struct TestMatrix {
  at::Tensor gradient;  // (m, n), float32
  at::Tensor exact;     // minus the exact direction, float64: U V^T, or sign(gradient)
};

/// One matrix of each different shape.
std::vector<TestMatrix> gaussian_matrices(const std::vector<Shape>& shapes);
std::vector<TestMatrix> one_over_i_matrices(const std::vector<Shape>& shapes);

/// Gaussian entries and their signs.
std::vector<TestMatrix> gaussian_signs(const std::vector<Shape>& shapes);

/// The momenta of hidden matrices in a safetensors file: a checkpoint of `gluon train`, or benchmarks/momenta.safetensors.
/// Throws InputError when there are none.
std::vector<TestMatrix> recorded_matrices(const std::string& path);

/// Minus the directions for gradients on the CPU.
using Directions = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& gradients)>;

/// Root mean square over the matrices of |P - exact|_F / |exact|_F, with P from `directions`.
double error_of(const Directions& directions, const std::vector<TestMatrix>& matrices);

/// The errors of one side; `recorded` is empty without a file.
struct Errors {
  double gaussian = 0;
  std::optional<double> recorded;
  std::optional<double> one_over_i;
};

}  // namespace gluon::benchmarks
