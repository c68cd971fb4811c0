#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>

#include "gluon/kernels/cuda_check.h"
#include "lab/models/cuda/cross_entropy.h"
#include "lab/models/cuda/embedding_gradient.h"
#include "lab/models/cuda/mlp_product.h"
#include "lab/models/cuda/qk_rotary.h"
#include "lab/models/cuda/rms_norm.h"
#include "lab/models/kernels.h"

namespace gluon::lab::fused {
namespace {

using kernels::check;

cudaStream_t stream() { return at::cuda::getCurrentCUDAStream(); }

__nv_bfloat16* data(const at::Tensor& tensor) {
  return static_cast<__nv_bfloat16*>(static_cast<void*>(tensor.data_ptr<at::BFloat16>()));
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
  const c10::cuda::CUDAGuard guard(x.device());
  const int64_t width = x.size(-1), rows = x.numel() / width;
  const RmsNorm norm{at::empty_like(x), at::empty({rows}, x.options().dtype(at::kFloat))};
  check(cuda::rms_norm_forward(data(x), data(norm.normed), norm.inverse.data_ptr<float>(), rows, width, stream()),
        "rms_norm");
  return norm;
}

at::Tensor rms_norm_backward(const RmsNorm& norm, const at::Tensor& gradient, const at::Tensor& residual) {
  const c10::cuda::CUDAGuard guard(gradient.device());
  const at::Tensor out = at::empty_like(gradient);
  check(cuda::rms_norm_backward(data(norm.normed), norm.inverse.data_ptr<float>(), data(gradient),
                                residual.defined() ? data(residual) : nullptr, data(out), norm.inverse.numel(),
                                gradient.size(-1), stream()),
        "rms_norm_backward");
  return out;
}

at::Tensor mlp_up(const at::Tensor& x, const at::Tensor& weight) {
  const c10::cuda::CUDAGuard guard(x.device());
  const cuda::MlpShape shape{x.numel() / x.size(-1), static_cast<int>(weight.size(0)),
                             static_cast<int>(weight.size(1))};
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = shape.columns;
  const at::Tensor out = at::empty(sizes, x.options());
  check(cuda::mlp_up(shape, data(x), data(weight), data(out), stream()), "mlp_up");
  return out;
}

at::Tensor mlp_down_backward(const at::Tensor& gradient, const at::Tensor& weight, const at::Tensor& square) {
  const c10::cuda::CUDAGuard guard(square.device());
  const cuda::MlpShape shape{square.numel() / weight.size(1), static_cast<int>(weight.size(1)),
                             static_cast<int>(weight.size(0))};
  const at::Tensor out = at::empty_like(square);
  check(cuda::mlp_down_backward(shape, data(gradient), data(weight), data(square), data(out), stream()),
        "mlp_down_backward");
  return out;
}

at::Tensor qk_rotary_(const at::Tensor& qkv, const Rotary& rotary) {
  const c10::cuda::CUDAGuard guard(qkv.device());
  const at::Tensor inverse_rms =
      at::empty({qkv.size(0) * qkv.size(1), 2, rotary.heads}, qkv.options().dtype(at::kFloat));
  check(cuda::qk_rotary_forward(shape_of(qkv, rotary), parts_of(qkv), parts_of(qkv), inverse_rms.data_ptr<float>(),
                                stream()),
        "qk_rotary");
  return inverse_rms;
}

at::Tensor qk_rotary_backward(const at::Tensor& qkv, const at::Tensor& inverse_rms, const at::Tensor& query,
                              const at::Tensor& key, const at::Tensor& value, const Rotary& rotary) {
  const c10::cuda::CUDAGuard guard(qkv.device());
  const at::Tensor out = at::empty_like(qkv);
  check(cuda::qk_rotary_backward(shape_of(qkv, rotary), parts_of(qkv), inverse_rms.data_ptr<float>(),
                                 {alone(query), alone(key), alone(value)}, parts_of(out), stream()),
        "qk_rotary_backward");
  return out;
}

at::Tensor cross_entropy_(const at::Tensor& logits, const at::Tensor& labels, std::optional<double> scale) {
  const c10::cuda::CUDAGuard guard(logits.device());
  const at::Tensor losses = at::empty({logits.size(0)}, logits.options().dtype(at::kFloat));
  const cuda::CrossEntropy arguments{.rows = logits.size(0),
                                     .vocabulary = logits.size(1),
                                     .logits = data(logits),
                                     .labels = labels.data_ptr<int64_t>(),
                                     .losses = losses.data_ptr<float>(),
                                     .scale = static_cast<float>(scale.value_or(0)),
                                     .gradient = scale.has_value()};
  check(cuda::cross_entropy(arguments, stream()), "cross_entropy");
  return losses;
}

at::Tensor embedding_gradient(const at::Tensor& head, const at::Tensor& scale, const at::Tensor& tokens,
                              const at::Tensor& gradient) {
  const c10::cuda::CUDAGuard guard(head.device());
  const auto [sorted, order] = at::sort(tokens.to(at::kInt), std::optional(/*stable=*/true), /*dim=*/0);
  const at::Tensor out = at::empty_like(head);
  const at::Tensor firsts = at::empty({head.size(0) + 1}, sorted.options());
  const at::Tensor sums = at::empty({cuda::embedding_chunks(tokens.size(0)), head.size(1)}, head.options());
  check(cuda::embedding_gradient({.tokens = static_cast<int>(tokens.size(0)),
                                  .vocabulary = static_cast<int>(head.size(0)),
                                  .width = static_cast<int>(head.size(1)),
                                  .sorted = sorted.data_ptr<int>(),
                                  .order = order.data_ptr<int64_t>(),
                                  .gradient = data(gradient),
                                  .head = head.data_ptr<float>(),
                                  .scale = scale.data_ptr<float>(),
                                  .out = out.data_ptr<float>(),
                                  .firsts = firsts.data_ptr<int>(),
                                  .sums = sums.data_ptr<float>()},
                                 stream()),
        "embedding_gradient");
  return out;
}

}  // namespace gluon::lab::fused
