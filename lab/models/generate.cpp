#include "lab/models/generate.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "gluon/core/check.h"

namespace gluon::lab {
namespace {

// logits (vocabulary) on the CPU
int64_t draw(at::Tensor logits, const GenerateOptions& options, const at::Generator& generator) {
  GLUON_CHECK(at::isfinite(logits).all().item<bool>(),
              "generate: the model's logits hold NaN or Inf; its weights are damaged or have diverged");
  // As float32, in which the logits are, a tiny temperature is 0.
  if (static_cast<float>(options.temperature) == 0) return logits.argmax().item<int64_t>();
  at::Tensor candidates;  // (top_k) token of each remaining logit
  if (options.top_k > 0 && options.top_k < logits.size(0)) {
    std::tie(logits, candidates) = logits.topk(options.top_k);
  }
  // With the largest logit shifted to 0, a tiny temperature cannot overflow.
  const at::Tensor weights = at::softmax((logits - logits.max()) / options.temperature, -1);
  const at::Tensor choice = at::multinomial(weights, 1, /*replacement=*/false, generator);  // (1)
  return (candidates.defined() ? candidates.index_select(0, choice) : choice).item<int64_t>();
}

}  // namespace

void GenerateOptions::validate() const {
  GLUON_CHECK(count >= 0 && count <= kMostTokens, "generate: count must be in 0..", kMostTokens, ", got ", count);
  GLUON_CHECK(std::isfinite(temperature) && temperature >= 0, "generate: temperature must be finite and >= 0, got ",
              temperature);
  GLUON_CHECK(top_k >= 0, "generate: top_k must be >= 0, got ", top_k);
  GLUON_CHECK(vocabulary >= 0, "generate: vocabulary must be >= 0, got ", vocabulary);
}

std::vector<int64_t> generate(NanoGpt& model, std::span<const int64_t> prompt, const GenerateOptions& options,
                              const at::Generator& generator) {
  options.validate();
  GLUON_CHECK(!prompt.empty(), "generate: the prompt is empty, it needs at least one token");
  const int64_t model_vocabulary = model.options().vocabulary;
  const int64_t vocabulary = options.vocabulary > 0 ? options.vocabulary : model_vocabulary;
  GLUON_CHECK(vocabulary <= model_vocabulary, "generate: vocabulary must be at most the model's ", model_vocabulary,
              ", got ", vocabulary);
  for (const int64_t token : prompt) {
    GLUON_CHECK(token >= 0 && token < model_vocabulary, "generate: prompt token ", token,
                " is outside the vocabulary of ", model_vocabulary);
  }

  const at::NoGradGuard no_grad;
  const at::Device device = model.parameters().front().device();
  std::vector<int64_t> text(prompt.begin(), prompt.end());
  for (int64_t i = 0; i < options.count; ++i) {
    const int64_t seen = std::min<int64_t>(text.size(), model.options().context);
    const at::Tensor tokens =  // (1, seen)
        at::tensor(at::ArrayRef<int64_t>(text).slice(text.size() - seen), at::kLong).unsqueeze(0).to(device);
    // Only the last position goes through the head: with a large vocabulary it costs as much as the blocks.
    const at::Tensor last = model.features(tokens).select(1, seen - 1);    // (1, width)
    const at::Tensor logits = model.logits(last).squeeze(0).to(at::kCPU);  // (model vocabulary)
    text.push_back(draw(logits.narrow(0, 0, vocabulary), options, generator));
  }
  return {text.begin() + static_cast<std::ptrdiff_t>(prompt.size()), text.end()};
}

}  // namespace gluon::lab
