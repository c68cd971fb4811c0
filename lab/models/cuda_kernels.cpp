#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "gluon/kernels/cuda_check.h"
#include "gluon/kernels/kernels.h"
#include "lab/models/cuda/cross_entropy.h"
#include "lab/models/cuda/embedding_gradient.h"
#include "lab/models/cuda/mlp_product.h"
#include "lab/models/cuda/qk_rotary.h"
#include "lab/models/cuda/rms_norm.h"
#include "lab/models/kernels.h"

namespace gluon::lab::fused {
namespace {

std::string described(const at::Tensor& tensor) {
  if (!tensor.defined()) return "none";
  return join(tensor.is_contiguous() ? "" : "not contiguous ", tensor.scalar_type(), " ", tensor.sizes(), " on ",
              tensor.device());
}

// An operation on the GPU of a tensor, which is the current one meanwhile. Kernels get addresses alone: what the
// tensors are is checked here.
class Operation {
 public:
  Operation(const char* name, const at::Tensor& tensor) : name_(name), guard_(checked(name, tensor)) {}

  // Throws unless the tensor is contiguous, of this type and these sizes, and on this GPU.
  void expect(const char* what, const at::Tensor& tensor, at::ScalarType type, at::IntArrayRef sizes) const {
    const bool fits = tensor.defined() && tensor.is_contiguous() && tensor.scalar_type() == type &&
                      tensor.sizes() == sizes && tensor.device() == guard_.current_device();
    GLUON_CHECK(fits, name_, ": expected ", what, " contiguous ", type, " ", sizes, " on ", guard_.current_device(),
                ", got ", described(tensor));
  }

  void expect_dimensions(const char* what, const at::Tensor& tensor, int64_t count) const {
    GLUON_CHECK(tensor.defined() && tensor.dim() == count, name_, ": expected ", what, ", got ", described(tensor));
  }

  // A size that the kernels take: a multiple of `unit` up to `most`.
  void expect_size(const char* what, int64_t size, int64_t unit, int64_t most) const {
    GLUON_CHECK(size > 0 && size % unit == 0 && size <= most, name_, ": ", what, " must be a multiple of ", unit,
                " up to ", most, ", got ", size);
  }

  cudaStream_t stream() const { return at::cuda::getCurrentCUDAStream(); }
  void check(cudaError_t error) const { kernels::check(error, name_); }

 private:
  static at::Device checked(const char* name, const at::Tensor& tensor) {
    GLUON_CHECK(tensor.defined(), name, ": expected a tensor, got none");
    const std::string why = kernels::why_unavailable(tensor.device());
    GLUON_CHECK(why.empty(), name, ": the kernels do not run on ", tensor.device(), ": ", why);
    return tensor.device();
  }

  const char* name_;
  c10::cuda::CUDAGuard guard_;
};

constexpr int64_t kMostInt = std::numeric_limits<int>::max();

__nv_bfloat16* data(const at::Tensor& tensor) {
  return static_cast<__nv_bfloat16*>(static_cast<void*>(tensor.data_ptr<at::BFloat16>()));
}

// The widths of rms_norm.h.
void expect_width(const Operation& operation, int64_t width) { operation.expect_size("the width", width, 8, 8192); }

void expect_qkv(const Operation& operation, const at::Tensor& qkv, const Rotary& rotary) {
  operation.expect_dimensions("qkv (B, T, 3, heads, D)", qkv, 5);
  const int64_t positions = qkv.size(1), dimension = qkv.size(4);
  operation.expect_size("D", dimension, 16, 512);
  operation.expect("qkv (B, T, 3, heads, D)", qkv, at::kBFloat16, {qkv.size(0), positions, 3, rotary.heads, dimension});
  for (const at::Tensor* angles : {&rotary.cos, &rotary.sin}) {
    operation.expect_dimensions("angles (positions, D / 2)", *angles, 2);
    operation.expect("angles (positions >= T, D / 2)", *angles, at::kFloat,
                     {std::max(angles->size(0), positions), dimension / 2});
  }
}

cuda::RotaryShape shape_of(const at::Tensor& qkv, const Rotary& rotary) {
  return {.tokens = qkv.size(0) * qkv.size(1),
          .positions = qkv.size(1),
          .heads = rotary.heads,
          .dimension = qkv.size(-1),
          .cos = rotary.cos.data_ptr<float>(),
          .sin = rotary.sin.data_ptr<float>()};
}

// Contiguous qkv (B, T, 3, heads, D).
cuda::QueryKeyValue parts_of(const at::Tensor& qkv) {
  const int64_t width = qkv.size(3) * qkv.size(4);
  return {{data(qkv), 3 * width}, {data(qkv) + width, 3 * width}, {data(qkv) + 2 * width, 3 * width}};
}

// Contiguous (B, T, heads, D).
cuda::Heads alone(const at::Tensor& heads) { return {data(heads), heads.size(2) * heads.size(3)}; }

}  // namespace

RmsNorm rms_norm(const at::Tensor& x) {
  const Operation operation("rms_norm", x);
  operation.expect("x", x, at::kBFloat16, x.sizes());
  const int64_t width = x.dim() > 0 ? x.size(-1) : 0;
  expect_width(operation, width);
  const int64_t rows = x.numel() / width;
  const RmsNorm norm{at::empty_like(x), at::empty({rows}, x.options().dtype(at::kFloat))};
  operation.check(cuda::rms_norm_forward(data(x), data(norm.normed), norm.inverse.data_ptr<float>(), rows, width,
                                         operation.stream()));
  return norm;
}

at::Tensor rms_norm_backward(const RmsNorm& norm, const at::Tensor& gradient, const at::Tensor& residual) {
  const Operation operation("rms_norm_backward", norm.normed);
  const at::IntArrayRef sizes = norm.normed.sizes();
  const int64_t width = sizes.empty() ? 0 : sizes.back();
  expect_width(operation, width);
  const int64_t rows = norm.normed.numel() / width;
  operation.expect("normed", norm.normed, at::kBFloat16, sizes);
  operation.expect("inverse", norm.inverse, at::kFloat, {rows});
  operation.expect("gradient", gradient, at::kBFloat16, sizes);
  if (residual.defined()) operation.expect("residual", residual, at::kBFloat16, sizes);
  const at::Tensor out = at::empty_like(gradient);
  operation.check(cuda::rms_norm_backward(data(norm.normed), norm.inverse.data_ptr<float>(), data(gradient),
                                          residual.defined() ? data(residual) : nullptr, data(out), rows, width,
                                          operation.stream()));
  return out;
}

at::Tensor mlp_up(const at::Tensor& x, const at::Tensor& weight) {
  const Operation operation("mlp_up", x);
  operation.expect_dimensions("weight (n, k)", weight, 2);
  GLUON_CHECK(x.dim() > 0, "mlp_up: expected x (..., k), got a scalar");
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = weight.size(1);
  operation.expect("x (..., k)", x, at::kBFloat16, sizes);
  operation.expect("weight (n, k)", weight, at::kBFloat16, weight.sizes());
  for (const int64_t size : weight.sizes()) operation.expect_size("n and k", size, 8, kMostInt);
  const cuda::MlpShape shape{x.numel() / weight.size(1), static_cast<int>(weight.size(0)),
                             static_cast<int>(weight.size(1))};
  sizes.back() = shape.columns;
  const at::Tensor out = at::empty(sizes, x.options());
  operation.check(cuda::mlp_up(shape, data(x), data(weight), data(out), operation.stream()));
  return out;
}

at::Tensor mlp_down_backward(const at::Tensor& gradient, const at::Tensor& weight, const at::Tensor& square) {
  const Operation operation("mlp_down_backward", square);
  operation.expect_dimensions("weight (k, n)", weight, 2);
  operation.expect_dimensions("square (N, n)", square, 2);
  const int64_t rows = square.size(0), depth = weight.size(0), columns = weight.size(1);
  operation.expect("weight (k, n)", weight, at::kBFloat16, {depth, columns});
  operation.expect("square (N, n)", square, at::kBFloat16, {rows, columns});
  operation.expect("gradient (N, k)", gradient, at::kBFloat16, {rows, depth});
  for (const int64_t size : {depth, columns}) operation.expect_size("n and k", size, 8, kMostInt);
  const cuda::MlpShape shape{rows, static_cast<int>(columns), static_cast<int>(depth)};
  const at::Tensor out = at::empty_like(square);
  operation.check(
      cuda::mlp_down_backward(shape, data(gradient), data(weight), data(square), data(out), operation.stream()));
  return out;
}

at::Tensor qk_rotary_(const at::Tensor& qkv, const Rotary& rotary) {
  const Operation operation("qk_rotary", qkv);
  expect_qkv(operation, qkv, rotary);
  const at::Tensor inverse_rms =
      at::empty({qkv.size(0) * qkv.size(1), 2, rotary.heads}, qkv.options().dtype(at::kFloat));
  operation.check(cuda::qk_rotary_forward(shape_of(qkv, rotary), parts_of(qkv), parts_of(qkv),
                                          inverse_rms.data_ptr<float>(), operation.stream()));
  return inverse_rms;
}

at::Tensor qk_rotary_backward(const at::Tensor& qkv, const at::Tensor& inverse_rms, const at::Tensor& query,
                              const at::Tensor& key, const at::Tensor& value, const Rotary& rotary) {
  const Operation operation("qk_rotary_backward", qkv);
  expect_qkv(operation, qkv, rotary);
  operation.expect("inverse rms", inverse_rms, at::kFloat, {qkv.size(0) * qkv.size(1), 2, rotary.heads});
  for (const at::Tensor* gradient : {&query, &key, &value}) {
    operation.expect("the gradient of queries, keys and values (B, T, heads, D)", *gradient, at::kBFloat16,
                     {qkv.size(0), qkv.size(1), rotary.heads, qkv.size(4)});
  }
  const at::Tensor out = at::empty_like(qkv);
  operation.check(cuda::qk_rotary_backward(shape_of(qkv, rotary), parts_of(qkv), inverse_rms.data_ptr<float>(),
                                           {alone(query), alone(key), alone(value)}, parts_of(out),
                                           operation.stream()));
  return out;
}

at::Tensor cross_entropy_(const at::Tensor& logits, const at::Tensor& labels, std::optional<double> scale) {
  const Operation operation("cross_entropy", logits);
  operation.expect_dimensions("logits (n, vocabulary)", logits, 2);
  operation.expect("logits (n, vocabulary)", logits, at::kBFloat16, logits.sizes());
  operation.expect("labels (n)", labels, at::kLong, {logits.size(0)});
  const at::Tensor losses = at::empty({logits.size(0)}, logits.options().dtype(at::kFloat));
  const cuda::CrossEntropy arguments{.rows = logits.size(0),
                                     .vocabulary = logits.size(1),
                                     .logits = data(logits),
                                     .labels = labels.data_ptr<int64_t>(),
                                     .losses = losses.data_ptr<float>(),
                                     .scale = static_cast<float>(scale.value_or(0)),
                                     .gradient = scale.has_value()};
  operation.check(cuda::cross_entropy(arguments, operation.stream()));
  return losses;
}

at::Tensor embedding_gradient(const at::Tensor& head, const at::Tensor& scale, const at::Tensor& tokens,
                              const at::Tensor& gradient) {
  const Operation operation("embedding_gradient", head);
  operation.expect_dimensions("head (v, width)", head, 2);
  const int64_t vocabulary = head.size(0), width = head.size(1), count = tokens.numel();
  operation.expect_size("the width", width, 4, kMostInt);
  operation.expect_size("the vocabulary", vocabulary, 1, kMostInt);
  GLUON_CHECK(count <= kMostInt, "embedding_gradient: expected at most ", kMostInt, " tokens, got ", count);
  operation.expect("head (v, width)", head, at::kFloat, {vocabulary, width});
  operation.expect("scale", scale, at::kFloat, {});
  operation.expect("tokens (n)", tokens, at::kLong, {count});
  operation.expect("gradient (n, width)", gradient, at::kBFloat16, {count, width});
  // A token outside the vocabulary stays outside as an int.
  const at::Tensor narrow = tokens.clamp(-1, vocabulary).to(at::kInt);
  const auto [sorted, order] = at::sort(narrow, std::optional(/*stable=*/true), /*dim=*/0);
  const at::Tensor out = at::empty_like(head);
  const at::Tensor firsts = at::empty({vocabulary + 1}, sorted.options());
  const at::Tensor sums = at::empty({cuda::embedding_chunks(count), width}, head.options());
  operation.check(cuda::embedding_gradient({.tokens = static_cast<int>(count),
                                            .vocabulary = static_cast<int>(vocabulary),
                                            .width = static_cast<int>(width),
                                            .sorted = sorted.data_ptr<int>(),
                                            .order = order.data_ptr<int64_t>(),
                                            .gradient = data(gradient),
                                            .head = head.data_ptr<float>(),
                                            .scale = scale.data_ptr<float>(),
                                            .out = out.data_ptr<float>(),
                                            .firsts = firsts.data_ptr<int>(),
                                            .sums = sums.data_ptr<float>()},
                                           operation.stream()));
  return out;
}

}  // namespace gluon::lab::fused
