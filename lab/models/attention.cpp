#include "lab/models/attention.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/version.h>

#include <cmath>
#include <limits>

namespace gluon::lab {
namespace {

constexpr double kRotaryBase = 10000;

double epsilon_of(at::ScalarType type) {
  return type == at::kDouble ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
}

// Queries and keys (B, H, T, D) -> (B H, T, T), -inf where the key is later.
at::Tensor causal_scores(const at::Tensor& queries, const at::Tensor& keys) {
  const int64_t tokens = queries.size(2);
  const int64_t dimension = queries.size(3);
  const auto matrices = [&](const at::Tensor& x) { return x.reshape({-1, tokens, dimension}); };  // (B H, T, D)
  // (T, T), 0 or -inf
  const at::Tensor mask =
      at::full({tokens, tokens}, -std::numeric_limits<double>::infinity(), queries.options()).triu(1);
  // The product starts from the mask, so that masking needs no extra pass.
  return at::baddbmm(mask.unsqueeze(0), matrices(queries), matrices(keys).transpose(1, 2), /*beta=*/1,
                     /*alpha=*/1 / std::sqrt(static_cast<double>(dimension)));
}

// scores (B H, T, T), largest (H)
void raise_to_largest(at::Tensor largest, const at::Tensor& scores) {
  const at::NoGradGuard no_grad;
  const at::Tensor heads = scores.view({-1, largest.size(0), scores.size(1) * scores.size(2)});
  at::maximum_out(largest, largest, heads.amax(2).amax(0));
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

at::Tensor causal_attention(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                            const at::Tensor& largest) {
#if TORCH_VERSION_MAJOR >= 2
  if (largest.defined()) {
    const at::NoGradGuard no_grad;
    // One example at a time: the scores of all of them are the memory that the operator below does without.
    for (int64_t b = 0; b < queries.size(0); ++b) {
      raise_to_largest(largest, causal_scores(queries.narrow(0, b, 1), keys.narrow(0, b, 1)));
    }
  }
  return at::scaled_dot_product_attention(queries, keys, values, /*attn_mask=*/{}, /*dropout_p=*/0.0,
                                          /*is_causal=*/true);
#else
  const at::Tensor scores = causal_scores(queries, keys);
  if (largest.defined()) raise_to_largest(largest, scores);
  const at::Tensor mixed = at::bmm(at::softmax(scores, -1), values.reshape({-1, values.size(2), values.size(3)}));
  return mixed.view(queries.sizes());
#endif
}

CausalAttention::CausalAttention(int64_t context, int64_t head_dimension, bool qk_norm)
    : context_(context), head_dimension_(head_dimension), qk_norm_(qk_norm) {}

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

at::Tensor CausalAttention::operator()(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                                       const at::Tensor& largest) {
  const auto placed = [&](const at::Tensor& x) {  // (B, H, T, D)
    return rotate(qk_norm_ ? rms_norm(x) : x).transpose(1, 2);
  };
  const at::Tensor q = placed(queries), k = placed(keys);
  return causal_attention(q, k, values.transpose(1, 2), largest).transpose(1, 2);
}

}  // namespace gluon::lab
