#include "lab/models/fused.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/autograd.h>
#include <torch/version.h>

#include <vector>

#include "lab/models/attention.h"

#define GLUON_TORCH_AT_LEAST_2_8 (TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 8))

namespace gluon::lab {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// (B, T, n) or (N, n) -> (N, n)
at::Tensor rows(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

// targets[i] <- sources[i], in one launch if LibTorch has it.
void copy_all(const std::vector<at::Tensor>& targets, const std::vector<at::Tensor>& sources) {
#if GLUON_TORCH_AT_LEAST_2_8
  at::_foreach_copy_(targets, sources);
#else
  for (std::size_t i = 0; i < targets.size(); ++i) targets[i].copy_(sources[i]);
#endif
}

// The parameters in bfloat16. The functions below take both: they compute with the rounded parameters, and pass the
// gradients to the exact float32 ones.
struct Rounded {
  struct Block {
    at::Tensor qkv;  // (3 width, width)
    at::Tensor projection, up, down;
  };
  at::Tensor embedding;
  std::vector<Block> blocks;

  Rounded(const at::Tensor& exact, const std::vector<NanoGptBlock>& exact_blocks) {
    const at::NoGradGuard no_grad;
    const auto half_like = [](const at::Tensor& x) { return at::empty_like(x, at::kBFloat16); };
    embedding = half_like(exact);
    std::vector<at::Tensor> targets{embedding}, sources{exact};
    for (const NanoGptBlock& block : exact_blocks) {
      const int64_t width = block.query.size(1);
      const at::Tensor qkv = at::empty({3 * width, width}, embedding.options());
      const std::vector<at::Tensor> thirds = qkv.chunk(3);
      blocks.push_back({qkv, half_like(block.projection), half_like(block.up), half_like(block.down)});
      const Block& b = blocks.back();
      targets.insert(targets.end(), {thirds[0], thirds[1], thirds[2], b.projection, b.up, b.down});
      sources.insert(sources.end(), {block.query, block.key, block.value, block.projection, block.up, block.down});
    }
    copy_all(targets, sources);
  }
};

// input weight^T, (N, k) and (n, k).
at::Tensor product(const at::Tensor& input, const at::Tensor& weight) {
  const at::Tensor out = at::empty({input.size(0), weight.size(0)}, input.options());
  fused::multiply_(out, input, false, weight, true);
  return out;
}

// The gradient of a float32 weight from that of x weight^T, both bfloat16.
at::Tensor weight_gradient(const at::Tensor& gradient, const at::Tensor& x) {
  const at::Tensor out = at::empty({gradient.size(1), x.size(1)}, x.options().dtype(at::kFloat));
  fused::multiply_(out, gradient, true, x, false);
  return out;
}

// Both gradients of input weight^T, from that of the product: of the input (N, k), bfloat16, and of the weight, float32.
struct ProductGradients {
  at::Tensor input, weight;

  ProductGradients(const at::Tensor& gradient, const at::Tensor& rounded_weight, const at::Tensor& product_input)
      : input(at::empty_like(product_input)) {
    fused::side_by_side(
        gradient.device(), [&] { fused::multiply_(input, gradient, false, rounded_weight, false); },
        [&] { weight = weight_gradient(gradient, product_input); });
  }
};

// x <- x + input weight^T in one product, then its norm.
fused::RmsNorm add_product_(const at::Tensor& x, const at::Tensor& input, const at::Tensor& weight) {
  fused::multiply_(rows(x), rows(input), false, weight, true, /*add=*/true);
  return fused::rms_norm(x);
}

// The gradient of the residual stream before a function from those after it: of the stream and of its norm.
at::Tensor stream_gradient(const fused::RmsNorm& norm, const variable_list& gradients) {
  const at::Tensor residual = gradients[0].defined() ? gradients[0].contiguous() : at::Tensor();
  return fused::rms_norm_backward(norm, gradients[1].contiguous(), residual);
}

// Tokens (B, T) -> the residual stream (B, T, width) and its norm, and for HeadLoss the embedding and a factor of 1.
// Their gradients come back here, where a single pass adds the head's and the tokens' gradient of the embedding.
struct Embed : Function<Embed> {
  static variable_list forward(AutogradContext* context, const at::Tensor& exact, const at::Tensor& embedding,
                               const at::Tensor& tokens) {
    const at::Tensor x = at::embedding(embedding, tokens);
    const auto [normed, inverse] = fused::rms_norm(x);
    context->save_for_backward({tokens, normed, inverse});
    return {x, normed, exact, at::ones({}, exact.options())};
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor gradient = stream_gradient({saved[1], saved[2]}, gradients);
    const at::Tensor &head = gradients[2], &factor = gradients[3];
    return {fused::embedding_gradient(head, factor, saved[0].flatten(), rows(gradient)), {}, {}};
  }
};

// y (B, T, width) -> queries, keys, values (B, heads, T, D) for attention.
struct QkvRotary : Function<QkvRotary> {
  static variable_list forward(AutogradContext* context, const at::Tensor& y, const at::Tensor& /*exact query*/,
                               const at::Tensor& /*exact key*/, const at::Tensor& /*exact value*/,
                               const at::Tensor& weight, const at::Tensor& cos, const at::Tensor& sin, int64_t heads) {
    const int64_t dimension = y.size(2) / heads;
    const at::Tensor qkv = product(rows(y), weight).view({y.size(0), y.size(1), 3, heads, dimension});
    const at::Tensor inverse_rms = fused::qk_rotary_(qkv, {cos, sin, heads});
    context->save_for_backward({y, weight, qkv, inverse_rms, cos, sin});
    context->saved_data["heads"] = heads;
    return {qkv.select(2, 0).transpose(1, 2), qkv.select(2, 1).transpose(1, 2), qkv.select(2, 2).transpose(1, 2)};
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &y = saved[0], &weight = saved[1], &qkv = saved[2];
    const auto heads = [&](std::size_t i) { return gradients[i].transpose(1, 2).contiguous(); };  // (B, T, heads, D)
    const fused::Rotary rotary{saved[4], saved[5], context->saved_data["heads"].toInt()};
    const at::Tensor gradient =
        fused::qk_rotary_backward(qkv, saved[3], heads(0), heads(1), heads(2), rotary).view({-1, weight.size(0)});
    const ProductGradients gradients_of(gradient, weight, rows(y));
    const std::vector<at::Tensor> weights = gradients_of.weight.chunk(3);
    return {gradients_of.input.view(y.sizes()), weights[0], weights[1], weights[2], {}, {}, {}, {}};
  }
};

// x + heads weight^T in place of x, and its norm.
struct Project : Function<Project> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& heads,
                               const at::Tensor& /*exact*/, const at::Tensor& weight) {
    const auto [normed, inverse] = add_product_(x, heads, weight);
    context->mark_dirty({x});
    context->save_for_backward({heads, weight, normed, inverse});
    return {x, normed};
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &heads = saved[0], &weight = saved[1];
    const at::Tensor gradient = stream_gradient({saved[2], saved[3]}, gradients);
    const ProductGradients gradients_of(rows(gradient), weight, rows(heads));
    return {gradient, gradients_of.input.view(heads.sizes()), gradients_of.weight, {}};
  }
};

// x + 2 relu(y up^T)^2 down^T in place of x, and its norm; y is the norm before.
struct Mlp : Function<Mlp> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& y,
                               const at::Tensor& /*exact up*/, const at::Tensor& /*exact down*/, const at::Tensor& up,
                               const at::Tensor& down) {
    const at::Tensor hidden = fused::mlp_up(y, up);
    const auto [normed, inverse] = add_product_(x, hidden, down);
    context->mark_dirty({x});
    context->set_materialize_grads(false);  // the last x is not used
    context->save_for_backward({y, up, down, hidden, normed, inverse});
    return {x, normed};
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &y = saved[0], &up = saved[1], &down = saved[2], hidden = rows(saved[3]);
    const at::Tensor stream = stream_gradient({saved[4], saved[5]}, gradients), gradient = rows(stream);
    at::Tensor hidden_gradient, down_gradient;
    fused::side_by_side(
        gradient.device(), [&] { hidden_gradient = fused::mlp_down_backward(gradient, down, hidden); },
        [&] { down_gradient = weight_gradient(gradient, hidden); });
    const ProductGradients gradients_of(hidden_gradient, up, rows(y));
    return {stream, gradients_of.input.view(y.sizes()), gradients_of.weight, down_gradient, {}, {}};
  }
};

// Mean cross-entropy of y embedding^T. With `differentiate` the forward pass computes both gradients while it has the
// logits. The backward pass multiplies them by the gradient of the loss, which is not 1 if a step has several batches.
struct HeadLoss : Function<HeadLoss> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& y, const at::Tensor& /*exact*/,
                            const at::Tensor& /*factor*/, const at::Tensor& embedding, const at::Tensor& targets,
                            bool differentiate) {
    const at::Tensor features = rows(y);
    const at::Tensor logits = product(features, embedding);
    const auto scale = differentiate ? std::optional(1.0 / static_cast<double>(features.size(0))) : std::nullopt;
    const at::Tensor losses = fused::cross_entropy_(logits, targets.flatten(), scale);
    if (differentiate) {
      const ProductGradients gradients_of(logits, embedding, features);
      context->save_for_backward({gradients_of.input.view(y.sizes()), gradients_of.weight});
    }
    return losses.mean();
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& factor = gradients[0];
    // As a vector the factor is multiplied in float32; a scalar would be rounded to bfloat16.
    at::Tensor y_gradient = at::empty_like(saved[0]);
    at::mul_out(y_gradient, saved[0], factor.view({1}));
    return {y_gradient, saved[1], factor, {}, {}, {}};
  }
};

}  // namespace

fused::Rotary make_rotary(int64_t positions, int64_t heads, int64_t head_dimension, const at::Device& device) {
  const at::Tensor angles = rotary_angles(positions, head_dimension);
  return {angles.cos().to(device, at::kFloat), angles.sin().to(device, at::kFloat), heads};
}

at::Tensor fused_loss(const at::Tensor& embedding, const std::vector<NanoGptBlock>& blocks, const fused::Rotary& rotary,
                      const at::Tensor& inputs, const at::Tensor& targets) {
  const Rounded rounded(embedding, blocks);
  const variable_list start = Embed::apply(embedding, rounded.embedding, inputs);
  variable_list stream = start;  // x and its norm, (B, T, width)
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const NanoGptBlock& exact = blocks[i];
    const Rounded::Block& block = rounded.blocks[i];
    const variable_list heads = QkvRotary::apply(stream[1], exact.query, exact.key, exact.value, block.qkv, rotary.cos,
                                                 rotary.sin, rotary.heads);
    const at::Tensor mixed = causal_attention(heads[0], heads[1], heads[2]);  // (B, heads, T, D)
    stream =
        Project::apply(stream[0], mixed.transpose(1, 2).reshape(stream[1].sizes()), exact.projection, block.projection);
    stream = Mlp::apply(stream[0], stream[1], exact.up, exact.down, block.up, block.down);
  }
  return HeadLoss::apply(stream[1], start[2], start[3], rounded.embedding, targets, at::GradMode::is_enabled());
}

}  // namespace gluon::lab
