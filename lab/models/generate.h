// Generate: text from a trained NanoGpt, one token after another.
//
//   p = softmax(logits / temperature) over the top_k most likely tokens;  next ~ p;  append it to the prompt
//
// Temperature 0 always takes the most likely token. Every token sees the last `context` tokens before it.

#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <span>
#include <vector>

#include "lab/models/nanogpt.h"

namespace gluon::lab {

struct GenerateOptions {
  static constexpr int64_t kMostTokens = int64_t{1} << 24;

  int64_t count = 100;     // tokens to generate
  double temperature = 1;  // 0: always the most likely token
  int64_t top_k = 0;       // 0: all tokens
  int64_t vocabulary = 0;  // draw only tokens below this, to exclude padding; 0: the model's

  /// Throws InputError naming the option, its value and what is allowed.
  void validate() const;
};

/// The `count` tokens that follow the prompt. All draws come from the CPU generator. Throws InputError on
/// an empty prompt or one with tokens outside the vocabulary.
std::vector<int64_t> generate(NanoGpt& model, std::span<const int64_t> prompt, const GenerateOptions& options,
                              const at::Generator& generator);

}  // namespace gluon::lab
