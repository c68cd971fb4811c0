// QK-clip: keeps attention logits at most tau by scaling the projections of queries and keys, head by head.
//
//   S_h = max of <q_i, k_j> / sqrt(d) over batch and positions, in the forward pass of the step
//   gamma_h = tau / S_h where S_h > tau, 1 elsewhere
//   Wq_h <- gamma_h^alpha Wq_h,  Wk_h <- gamma_h^(1 - alpha) Wk_h            so that the logits shrink by gamma_h
//
// It comes after the update: gradient -> momentum -> LMO direction -> radius -> update -> QK-clip. Momentum and all
// other state of the optimizer stay. The logits are those before the step, so that the next ones may exceed tau by what
// one step and another batch add. With QK norm the scale of Wq and Wk is without effect, and this function, too.
//
// Key heads that several query heads share (grouped queries) stay, so that no head changes another one's logits, and Wq
// takes all of gamma: Kimi K2's rule for the keys that its heads share. (Kimi K2, arXiv 2507.20534, section on
// MuonClip: tau = 100, alpha = 1/2)

#pragma once

#include <ATen/core/Tensor.h>

namespace gluon {

struct QkClipOptions {
  double tau = 100;    // largest logit
  double alpha = 0.5;  // share of the queries, as an exponent; without effect where key heads are shared

  /// Throws InputError naming the option, its value and what is allowed.
  void validate() const;
};

/// Scales the row blocks of the heads with S_h > tau in place; all others keep their bits. `query` (heads d, n) and
/// `key` (key heads d, n) are weights, or views of rows of a fused one, of any floating point type; of biases, (heads
/// d) and (key heads d), a call of their own takes the same logits. `max_logits` (heads) holds S, which may be negative.
/// Returns gamma (heads) on the weights' device and waits for no device. A head whose S is NaN or +Inf keeps its
/// weights and has NaN there. Throws InputError, with nothing changed, when sizes, types or devices do not fit.
at::Tensor qk_clip(const at::Tensor& query, const at::Tensor& key, const at::Tensor& max_logits,
                   const QkClipOptions& options = {});

}  // namespace gluon
