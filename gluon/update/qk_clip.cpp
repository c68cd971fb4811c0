#include "gluon/update/qk_clip.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <limits>
#include <string_view>

#include "gluon/core/check.h"
#include "gluon/core/precision.h"

namespace gluon {
namespace {

void check_projection(const at::Tensor& projection, std::string_view name, const at::Tensor& max_logits) {
  GLUON_CHECK((projection.dim() == 2 || projection.dim() == 1) && projection.is_floating_point(), "qk_clip: expected ",
              name, " (heads d, n) or (heads d) floating point, got ", projection.scalar_type(), " ",
              projection.sizes());
  GLUON_CHECK(projection.device() == max_logits.device(), "qk_clip: expected max_logits on the device of ", name, ", ",
              projection.device(), ", got ", max_logits.device());
}

// The number of key heads, each with the rows of a query head.
int64_t key_heads_of(const at::Tensor& query, const at::Tensor& key, int64_t heads) {
  GLUON_CHECK(query.size(0) > 0 && query.size(0) % heads == 0, "qk_clip: expected a multiple of ", heads,
              " heads as rows of query, got ", query.size(0));
  const int64_t rows = query.size(0) / heads, key_heads = key.size(0) / rows;
  GLUON_CHECK(key_heads > 0 && key_heads * rows == key.size(0) && heads % key_heads == 0,
              "qk_clip: expected key heads of ", rows, " rows, as many as ", heads,
              " query heads or a divisor of that, got ", key.size(0), " rows of key");
  return key_heads;
}

// Multiplies row block h by factors[h] (heads), with a single rounding in half precision.
void scale_heads(const at::Tensor& projection, const at::Tensor& factors) {
  const at::Tensor blocks = projection.unflatten(0, {factors.size(0), -1});  // a view also of strided rows
  blocks.mul_(factors.view(blocks.dim() == 3 ? at::IntArrayRef{-1, 1, 1} : at::IntArrayRef{-1, 1}));
}

}  // namespace

void QkClipOptions::validate() const {
  constexpr double kSmallest = 1e-30, kLargest = 1e30;  // not zero or infinite in float32
  GLUON_CHECK(tau >= kSmallest && tau <= kLargest, "qk_clip: tau must be in ", kSmallest, "..", kLargest, ", got ",
              tau);
  GLUON_CHECK(alpha >= 0 && alpha <= 1, "qk_clip: alpha must be in [0, 1], got ", alpha);
}

at::Tensor qk_clip(const at::Tensor& query, const at::Tensor& key, const at::Tensor& max_logits,
                   const QkClipOptions& options) {
  options.validate();
  GLUON_CHECK(max_logits.dim() == 1 && max_logits.numel() > 0 && max_logits.is_floating_point(),
              "qk_clip: expected max_logits (heads) floating point, got ", max_logits.scalar_type(), " ",
              max_logits.sizes());
  check_projection(query, "query", max_logits);
  check_projection(key, "key", max_logits);
  const int64_t heads = max_logits.size(0);
  const bool shared = key_heads_of(query, key, heads) < heads;

  const at::NoGradGuard no_grad;
  const at::Tensor logits = max_logits.to(compute_type(at::promote_types(query.scalar_type(), key.scalar_type())));
  const at::Tensor bad = logits.isnan().logical_or_(logits == std::numeric_limits<double>::infinity());
  const at::Tensor tau = at::scalar_tensor(options.tau, logits.options());
  const at::Tensor gamma = at::where(logits > tau, tau / logits, at::ones_like(logits)).masked_fill_(bad, 1);
  if (shared) {
    scale_heads(query, gamma);
  } else {
    scale_heads(query, gamma.pow(options.alpha));
    scale_heads(key, gamma.pow(1 - options.alpha));
  }
  return gamma.masked_fill(bad, std::numeric_limits<double>::quiet_NaN());
}

}  // namespace gluon
