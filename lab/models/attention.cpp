#include "lab/models/attention.h"

#include <ATen/ATen.h>
#include <torch/version.h>

#include <cmath>
#include <limits>

namespace gluon::lab {
namespace {

constexpr double kRotaryBase = 10000;

double epsilon_of(at::ScalarType type) {
  return type == at::kDouble ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
}

}  // namespace

at::Tensor rms_norm(const at::Tensor& x) {
  return x * x.square().mean(-1, /*keepdim=*/true).add(epsilon_of(x.scalar_type())).rsqrt();
}

at::Tensor rotary_angles(int64_t positions, int64_t head_dimension) {
  const at::TensorOptions exact = at::TensorOptions().dtype(at::kDouble);
  const at::Tensor frequencies =  // (D / 2)
      at::pow(kRotaryBase, at::arange(0, head_dimension, 2, exact) / -static_cast<double>(head_dimension));
  return at::outer(at::arange(positions, exact), frequencies);
}

at::Tensor causal_attention(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values) {
#if TORCH_VERSION_MAJOR >= 2
  return at::scaled_dot_product_attention(queries, keys, values, /*attn_mask=*/{}, /*dropout_p=*/0.0,
                                          /*is_causal=*/true);
#else
  const int64_t tokens = queries.size(2);
  const int64_t dimension = queries.size(3);
  const auto matrices = [&](const at::Tensor& x) { return x.reshape({-1, tokens, dimension}); };  // (B H, T, D)
  // (T, T), 0 or -inf
  const at::Tensor mask =
      at::full({tokens, tokens}, -std::numeric_limits<double>::infinity(), queries.options()).triu(1);
  // The product starts from the mask, so that masking needs no extra pass.
  const at::Tensor scores =  // (B H, T, T)
      at::baddbmm(mask.unsqueeze(0), matrices(queries), matrices(keys).transpose(1, 2), /*beta=*/1,
                  /*alpha=*/1 / std::sqrt(static_cast<double>(dimension)));
  return at::bmm(at::softmax(scores, -1), matrices(values)).view(queries.sizes());
#endif
}

CausalAttention::CausalAttention(int64_t context, int64_t head_dimension)
    : context_(context), head_dimension_(head_dimension) {}

void CausalAttention::make_tables(const at::TensorOptions& options) {
  if (cos_.defined() && cos_.device() == options.device() && cos_.dtype() == options.dtype()) return;
  const at::Tensor angles = rotary_angles(context_, head_dimension_).unsqueeze(1);  // (context, 1, D / 2)
  const at::Tensor sin = angles.sin();
  cos_ = angles.cos().repeat({1, 1, 2}).to(options);
  sin_ = at::cat({sin, -sin}, -1).to(options);
}

at::Tensor CausalAttention::rotate(const at::Tensor& x) {
  make_tables(x.options());
  const int64_t tokens = x.size(1);
  const int64_t half = head_dimension_ / 2;
  const at::Tensor swapped = at::cat({x.narrow(-1, half, half), x.narrow(-1, 0, half)}, -1);  // (B, T, H, D)
  return at::addcmul(x * cos_.narrow(0, 0, tokens), swapped, sin_.narrow(0, 0, tokens));
}

at::Tensor CausalAttention::operator()(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values) {
  const at::Tensor q = rotate(rms_norm(queries)).transpose(1, 2);  // (B, H, T, D)
  const at::Tensor k = rotate(rms_norm(keys)).transpose(1, 2);     // (B, H, T, D)
  return causal_attention(q, k, values.transpose(1, 2)).transpose(1, 2);
}

}  // namespace gluon::lab
