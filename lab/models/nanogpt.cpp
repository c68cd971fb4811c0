#include "lab/models/nanogpt.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Reduction.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "gluon/core/check.h"
#include "gluon/kernels/kernels.h"

namespace gluon::lab {
namespace {

// A module without forward(), which gives its submodules or its "weight" a name.
class Part : public torch::nn::Module {
 public:
  std::shared_ptr<Part> part(const std::string& name) { return register_module(name, std::make_shared<Part>()); }
  at::Tensor weight(const std::string& name, const at::Tensor& value) {
    return part(name)->register_parameter("weight", value);
  }
};

// (rows, columns) uniform in +-1/sqrt(columns), the default of a linear layer.
at::Tensor linear_start(int64_t rows, int64_t columns, const at::Generator& random) {
  const double bound = 1 / std::sqrt(static_cast<double>(columns));
  return at::empty({rows, columns}).uniform_(-bound, bound, random);
}

// x (B, T, 4 width) -> 2 relu(x)^2
at::Tensor relu_squared(const at::Tensor& x) { return at::relu(x).square() * 2; }

void check_tokens(const at::Tensor& tokens, std::string_view what, int64_t vocabulary) {
  // On a GPU the check would make every step wait for the device.
  if (!tokens.device().is_cpu() || tokens.numel() == 0) return;
  const auto [low, high] = at::aminmax(tokens);
  const int64_t outside = low.item<int64_t>() < 0 ? low.item<int64_t>() : high.item<int64_t>();
  GLUON_CHECK(outside >= 0 && outside < vocabulary, "NanoGpt: ", what, " token ", outside,
              " is outside the vocabulary of ", vocabulary);
}

}  // namespace

void NanoGptOptions::validate() const {
  using Size = std::pair<const char*, int64_t>;
  for (const auto& [name, value] : {Size{"vocabulary", vocabulary}, Size{"context", context}, Size{"layers", layers},
                                    Size{"width", width}, Size{"heads", heads}}) {
    GLUON_CHECK(value > 0, "NanoGpt: ", name, " must be > 0, got ", value);
  }
  GLUON_CHECK(width % heads == 0, "NanoGpt: heads must divide width, got ", heads, " heads and width ", width);
  GLUON_CHECK(head_dimension() % 2 == 0, "NanoGpt: width / heads must be even for rotary positions, got ", width, " / ",
              heads, " = ", head_dimension());
}

NanoGptOptions nanogpt_options(std::string_view preset) {
  if (preset == "nanogpt-124m") return {};
  GLUON_CHECK(preset == "nanogpt-tiny", "NanoGpt: unknown preset '", preset,
              "'; allowed are nanogpt-124m, nanogpt-tiny");
  return {.vocabulary = 256, .context = 128, .layers = 4, .width = 128, .heads = 4};
}

NanoGpt::NanoGpt(const NanoGptOptions& options, uint64_t seed)
    : options_((options.validate(), options)), attention_(options.context, options.head_dimension(), options.qk_norm) {
  const int64_t width = options_.width;
  const at::Generator random = at::detail::createCPUGenerator(seed);
  const auto transformer = register_module("transformer", std::make_shared<Part>());
  embedding_ = transformer->weight("wte", linear_start(options_.vocabulary, width, random));
  const auto h = transformer->part("h");
  for (int64_t i = 0; i < options_.layers; ++i) {
    const auto block = h->part(std::to_string(i));
    const auto attn = block->part("attn");
    const auto mlp = block->part("mlp");
    blocks_.push_back({.query = attn->weight("c_q", linear_start(width, width, random)),
                       .key = attn->weight("c_k", linear_start(width, width, random)),
                       .value = attn->weight("c_v", linear_start(width, width, random)),
                       .projection = attn->weight("c_proj", at::zeros({width, width})),
                       .up = mlp->weight("c_fc", linear_start(4 * width, width, random)),
                       .down = mlp->weight("c_proj", at::zeros({width, 4 * width}))});
  }
}

// x (B, T, width), normalised -> (B, T, width)
at::Tensor NanoGpt::attend(const Block& block, const at::Tensor& x, const at::Tensor& largest_logits) {
  const auto heads = [&](const at::Tensor& weight) {  // (B, T, heads, head dimension)
    return at::linear(x, weight).view({x.size(0), x.size(1), options_.heads, options_.head_dimension()});
  };
  const at::Tensor mixed = attention_(heads(block.query), heads(block.key), heads(block.value), largest_logits);
  return at::linear(mixed.reshape(x.sizes()), block.projection);
}

void NanoGpt::check_inputs(const at::Tensor& tokens) const {
  GLUON_CHECK(tokens.dim() == 2 && tokens.scalar_type() == at::kLong && tokens.size(1) > 0,
              "NanoGpt: expected tokens (B, T) int64, got ", tokens.scalar_type(), " ", tokens.sizes());
  GLUON_CHECK(tokens.size(1) <= options_.context, "NanoGpt: got ", tokens.size(1),
              " tokens in a sequence, the context is ", options_.context);
  check_tokens(tokens, "input", options_.vocabulary);
}

at::Tensor NanoGpt::features(const at::Tensor& tokens) {
  check_inputs(tokens);
  at::Tensor x = at::embedding(embedding_, tokens);  // (B, T, width)
  const bool watched = largest_logits_.defined() && is_training();
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const Block& block = blocks_[i];
    x = x + attend(block, rms_norm(x), watched ? largest_logits_[static_cast<int64_t>(i)] : at::Tensor());
    x = x + at::linear(relu_squared(at::linear(rms_norm(x), block.up)), block.down);
  }
  return rms_norm(x);
}

at::Tensor NanoGpt::logits(const at::Tensor& features) const {
  const at::Tensor logits = at::linear(features, embedding_);  // (..., vocabulary)
  return logits.scalar_type() == at::kDouble ? logits : logits.to(at::kFloat);
}

at::Tensor NanoGpt::forward(const at::Tensor& tokens) { return logits(features(tokens)); }

at::Tensor NanoGpt::loss(const Batch& batch, double label_smoothing) {
  GLUON_CHECK(label_smoothing >= 0 && label_smoothing < 1, "NanoGpt: label smoothing must be in [0, 1), got ",
              label_smoothing);
  GLUON_CHECK(batch.targets.sizes() == batch.inputs.sizes(), "NanoGpt: expected one target per token, got inputs ",
              batch.inputs.sizes(), " and targets ", batch.targets.sizes());
  check_tokens(batch.targets, "target", options_.vocabulary);
  GLUON_CHECK(!fused_ || label_smoothing == 0, "NanoGpt: the loss in bfloat16 has no label smoothing, got ",
              label_smoothing);
  if (fused_) {
    check_inputs(batch.inputs);
    return fused_loss(embedding_, blocks_, rotary_, batch.inputs, batch.targets);
  }
  return at::cross_entropy_loss(forward(batch.inputs).flatten(0, 1), batch.targets.flatten(), /*weight=*/{},
                                at::Reduction::Mean, /*ignore_index=*/-100, label_smoothing);
}

bool NanoGpt::set_compute_type(at::ScalarType type) {
  // The limits of rms_norm.h and qk_rotary.h.
  const bool fits = options_.qk_norm && options_.width % 8 == 0 && options_.width <= 8192 &&
                    options_.head_dimension() % 16 == 0 && options_.head_dimension() <= 512;
  fused_ = type == at::kBFloat16 && fits && kernels::available(embedding_);
  if (fused_) {
    rotary_ = make_rotary(options_.context, options_.heads, options_.head_dimension(), embedding_.device());
  }
  return fused_ || type == at::kFloat;
}

std::string NanoGpt::slow_part() const {
  // The limits of the fast path in cross_entropy.h.
  const int64_t vocabulary = options_.vocabulary;
  if (!fused_ || (vocabulary % 8 == 0 && vocabulary <= 51200)) return {};
  return join("the loss over ", vocabulary, " tokens; fast are vocabularies divisible by 8, up to 51200");
}

std::vector<AttentionLogits> NanoGpt::watch_logits() {
  if (options_.qk_norm) return {};
  if (!largest_logits_.defined()) {
    largest_logits_ = at::full({options_.layers, options_.heads}, -std::numeric_limits<double>::infinity(),
                               embedding_.options().requires_grad(false));
  }
  std::vector<AttentionLogits> watched;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    watched.push_back({blocks_[i].query, blocks_[i].key, largest_logits_[static_cast<int64_t>(i)]});
  }
  return watched;
}

std::vector<Layer> NanoGpt::layers() const {
  std::vector<Layer> layers;
  Layer embedding;
  for (const auto& parameter : named_parameters()) {
    if (parameter.value().is_same(embedding_)) {
      embedding = {parameter.key(), parameter.value(), Role::kEmbedding};
    } else {
      layers.push_back({parameter.key(), parameter.value(), Role::kHidden});
    }
  }
  layers.push_back(embedding);
  return layers;
}

}  // namespace gluon::lab
