// NanoGpt: the language model of the paper's experiments (modded-nanogpt of October 2024).
//
//   x = wte[tokens]
//   x = x + c_proj(attention(c_q(y), c_k(y), c_v(y))),  y = rms_norm(x)        for every block,
//   x = x + c_proj(2 relu(c_fc(y))^2),                  y = rms_norm(x)        see attention.h
//   logits = rms_norm(x) wte^T                                                 the head is the embedding
//
// No biases, no norm weights, no positional parameters: every parameter is a matrix, so its layers are hidden
// matrices and one embedding tied with the head. 12 width^2 parameters per block.
//
// Initial values, as the authors': all matrices uniform in +-1/sqrt(fan in), including the tied one, which is a linear
// head first (an embedding's N(0, 1) would make logits of size width); both c_proj are zero, so every block starts as
// the identity. The model then predicts its own input with logit |wte_i| sqrt(width), about
// sqrt(width / 3): the paper's run starts at a loss of 16.01, near sqrt(768 / 3), not at log(vocabulary) = 10.8.
// (paper: section "Training NanoGPT on FineWeb")

#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "lab/models/attention.h"
#include "lab/models/fused.h"
#include "lab/models/model.h"

namespace gluon::lab {

struct NanoGptOptions {
  int64_t vocabulary = 50304;  // GPT-2's 50257 tokens, padded to a multiple of 128
  int64_t context = 1024;      // longest sequence
  int64_t layers = 12;
  int64_t width = 768;
  int64_t heads = 6;
  bool qk_norm = true;  // of queries and keys, see attention.h

  int64_t head_dimension() const { return width / heads; }

  /// Throws InputError unless all are positive, heads divide width and a head's dimension is even (rotary).
  void validate() const;
};

/// The options called `preset`: "nanogpt-124m", the paper's, or "nanogpt-tiny", bytes on a CPU. Throws
/// InputError that lists the names.
NanoGptOptions nanogpt_options(std::string_view preset);

class NanoGpt : public Model {
 public:
  /// The same seed gives the same parameters; no global random state is touched.
  explicit NanoGpt(const NanoGptOptions& options, uint64_t seed = 0);

  /// Tokens (B, T) int64, T <= context -> logits (B, T, vocabulary), float32 at least. Throws InputError on
  /// other shapes and, on the CPU, on tokens outside the vocabulary.
  torch::Tensor forward(const torch::Tensor& tokens) override;

  /// Mean cross-entropy over all B T tokens.
  torch::Tensor loss(const Batch& batch, double label_smoothing) override;

  /// bfloat16 where the kernels run (lab/models/kernels.h) and with QK norm, which they contain; float32 everywhere.
  bool set_compute_type(torch::ScalarType type) override;
  std::string slow_part() const override;

  std::vector<AttentionLogits> watch_logits() override;

  /// Block by block c_q, c_k, c_v, c_proj, mlp.c_fc, mlp.c_proj (hidden), then the tied embedding: the order of
  /// the authors' logs.
  std::vector<Layer> layers() const override;

  /// The two halves of forward(): tokens (B, T) -> normalised features (B, T, width) -> logits.
  torch::Tensor features(const torch::Tensor& tokens);
  torch::Tensor logits(const torch::Tensor& features) const;

  const NanoGptOptions& options() const { return options_; }

 private:
  using Block = NanoGptBlock;

  void check_inputs(const torch::Tensor& tokens) const;
  torch::Tensor attend(const Block& block, const torch::Tensor& x, const torch::Tensor& largest_logits);

  NanoGptOptions options_;
  CausalAttention attention_;
  torch::Tensor embedding_;  // (vocabulary, width)
  std::vector<Block> blocks_;
  torch::Tensor largest_logits_;  // (layers, heads) of training passes; undefined unless watched
  bool fused_ = false;            // whether loss() is fused_loss()
  fused::Rotary rotary_;          // for fused_loss()
};

}  // namespace gluon::lab
