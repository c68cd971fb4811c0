#include "lab/models/fused.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/autograd.h>
#include <torch/version.h>

#include <tuple>
#include <vector>

#include "lab/models/attention.h"

namespace gluon::lab {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// (B, T, n) or (N, n) -> (N, n)
at::Tensor rows(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

// s = x + y and its norm.
struct AddRmsNorm : Function<AddRmsNorm> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& y) {
    auto [sum, normed] = kernels::add_rms_norm(x, y);
    context->save_for_backward({sum});
    return {sum, normed};
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::Tensor sum = context->get_saved_variables()[0];
    const at::Tensor residual = gradients[0].defined() ? gradients[0].contiguous() : at::Tensor();
    const at::Tensor gradient = kernels::rms_norm_backward(sum, gradients[1].contiguous(), residual);
    return {gradient, gradient};
  }
};

struct RmsNorm : Function<RmsNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return kernels::rms_norm(x);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {kernels::rms_norm_backward(context->get_saved_variables()[0], gradients[0].contiguous(), {})};
  }
};

at::Tensor half(const at::Tensor& parameter) { return parameter.to(at::kBFloat16); }

// The gradient of a float32 weight from that of x weight^T, both bfloat16.
at::Tensor weight_gradient(const at::Tensor& gradient, const at::Tensor& x) {
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 8)
  return at::mm(gradient.t(), x, at::kFloat);
#else
  return at::mm(gradient.t(), x).to(at::kFloat);
#endif
}

// x weight^T
struct Linear : Function<Linear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight) {
    const at::Tensor rounded = half(weight);
    context->save_for_backward({x, rounded});
    return at::linear(x, rounded);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const at::Tensor gradient = rows(gradients[0].contiguous());
    return {at::mm(gradient, weight).view(x.sizes()), weight_gradient(gradient, rows(x))};
  }
};

// y (B, T, width) -> queries, keys, values (B, heads, T, D), ready for attention.
struct QkvRotary : Function<QkvRotary> {
  static variable_list forward(AutogradContext* context, const at::Tensor& y, const at::Tensor& query,
                               const at::Tensor& key, const at::Tensor& value, const at::Tensor& cos,
                               const at::Tensor& sin, int64_t heads) {
    const int64_t dimension = y.size(2) / heads;
    const at::Tensor weight = half(at::cat({query, key, value}));
    const at::Tensor qkv = at::linear(y, weight).view({y.size(0), y.size(1), 3, heads, dimension});
    const at::Tensor inverse_rms = kernels::qk_rotary_(qkv, {cos, sin, heads});
    context->save_for_backward({y, weight, qkv, inverse_rms, cos, sin});
    context->saved_data["heads"] = heads;
    return {qkv.select(2, 0).transpose(1, 2), qkv.select(2, 1).transpose(1, 2),
            qkv.select(2, 2).transpose(1, 2)};
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &y = saved[0], &weight = saved[1], &qkv = saved[2];
    const auto heads = [&](std::size_t i) {
      return gradients[i].transpose(1, 2).contiguous();
    };  // (B, T, heads, D)
    const kernels::Rotary rotary{saved[4], saved[5], context->saved_data["heads"].toInt()};
    const at::Tensor gradient =
        kernels::qk_rotary_backward(qkv, saved[3], heads(0), heads(1), heads(2), rotary)
            .view({-1, weight.size(0)});
    const std::vector<at::Tensor> weights = weight_gradient(gradient, rows(y)).chunk(3);
    return {at::mm(gradient, weight).view(y.sizes()), weights[0], weights[1], weights[2], {}, {}, {}};
  }
};

// 2 relu(y up^T)^2 down^T
struct Mlp : Function<Mlp> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& y, const at::Tensor& up,
                            const at::Tensor& down) {
    const at::Tensor half_up = half(up), half_down = half(down);
    const at::Tensor hidden = at::linear(y, half_up);
    kernels::squared_relu_(hidden);
    context->save_for_backward({y, half_up, half_down, hidden});
    return at::linear(hidden, half_down);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &y = saved[0], &up = saved[1], &down = saved[2];
    const at::Tensor gradient = rows(gradients[0].contiguous()), square = rows(saved[3]);
    const at::Tensor hidden_gradient = at::mm(gradient, down);
    kernels::squared_relu_backward_(square, hidden_gradient);
    return {at::mm(hidden_gradient, up).view(y.sizes()), weight_gradient(hidden_gradient, rows(y)),
            weight_gradient(gradient, square)};
  }
};

// Mean cross-entropy of y weight^T. With `differentiate` both gradients are made at once, while the logits are there.
struct HeadLoss : Function<HeadLoss> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& y, const at::Tensor& weight,
                            const at::Tensor& targets, bool differentiate) {
    const at::Tensor features = rows(y), rounded = half(weight);
    const at::Tensor logits = at::mm(features, rounded.t());
    const auto scale =
        differentiate ? std::optional(1.0 / static_cast<double>(features.size(0))) : std::nullopt;
    const at::Tensor losses = kernels::cross_entropy_(logits, targets.flatten(), scale);
    if (differentiate) {
      context->save_for_backward(
          {at::mm(logits, rounded).view(y.sizes()), weight_gradient(logits, features)});
    }
    return losses.mean();
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    // The loss may have been divided by the number of batches: its gradient is not 1 then.
    const at::Tensor& scale = gradients[0];
    return {saved[0] * scale.to(saved[0].scalar_type()), saved[1] * scale, {}, {}};
  }
};

}  // namespace

kernels::Rotary make_rotary(int64_t positions, int64_t heads, int64_t head_dimension,
                            const at::Device& device) {
  const at::Tensor angles = rotary_angles(positions, head_dimension);
  return {angles.cos().to(device, at::kFloat), angles.sin().to(device, at::kFloat), heads};
}

at::Tensor fused_loss(const at::Tensor& embedding, const std::vector<NanoGptBlock>& blocks,
                      const kernels::Rotary& rotary, const at::Tensor& inputs, const at::Tensor& targets) {
  at::Tensor x = half(at::embedding(embedding, inputs));  // (B, T, width)
  at::Tensor y = RmsNorm::apply(x);
  for (const NanoGptBlock& block : blocks) {
    const variable_list heads =
        QkvRotary::apply(y, block.query, block.key, block.value, rotary.cos, rotary.sin, rotary.heads);
    const at::Tensor mixed = causal_attention(heads[0], heads[1], heads[2]);  // (B, heads, T, D)
    const at::Tensor attended = Linear::apply(mixed.transpose(1, 2).reshape(y.sizes()), block.projection);
    const variable_list after_attention = AddRmsNorm::apply(x, attended);
    const at::Tensor hidden = Mlp::apply(after_attention[1], block.up, block.down);
    const variable_list after_mlp = AddRmsNorm::apply(after_attention[0], hidden);
    x = after_mlp[0];
    y = after_mlp[1];
  }
  return HeadLoss::apply(y, embedding, targets, at::GradMode::is_enabled());
}

}  // namespace gluon::lab
