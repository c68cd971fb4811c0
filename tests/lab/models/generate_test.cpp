#include "lab/models/generate.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>

#include "tests/expect_error.h"
#include "tests/lab/models/training_checks.h"

namespace gluon::lab {
namespace {

constexpr NanoGptOptions kSmall{.vocabulary = 12, .context = 5, .layers = 1, .width = 16, .heads = 2};

at::Generator generator(uint64_t seed) { return at::detail::createCPUGenerator(seed); }

std::shared_ptr<NanoGpt> small_model() {
  auto model = std::make_shared<NanoGpt>(kSmall, 2);
  fill_projections(*model, 0.5);  // the next token depends on all tokens before
  return model;
}

const std::vector<int64_t> kPrompt{3, 1, 4};

TEST(Generate, TemperatureZeroTakesTheMostLikelyTokenOfTheLastContext) {
  const auto model = small_model();
  const auto made = generate(*model, kPrompt, {.count = 8, .temperature = 0}, generator(1));
  ASSERT_EQ(made.size(), 8);
  std::vector<int64_t> text = kPrompt;
  for (const int64_t token : made) {
    const std::vector<int64_t> seen(text.end() - std::min<std::ptrdiff_t>(text.size(), kSmall.context), text.end());
    const at::Tensor logits = model->forward(at::tensor(seen, at::kLong).unsqueeze(0));  // (1, seen, vocabulary)
    EXPECT_EQ(token, logits[0][-1].argmax().item<int64_t>());
    text.push_back(token);
  }
  EXPECT_EQ(generate(*model, kPrompt, {.count = 8, .temperature = 3, .top_k = 1}, generator(9)), made);
  for (const double tiny : {1e-30, 1e-60, 5e-324}) {
    EXPECT_EQ(generate(*model, kPrompt, {.count = 8, .temperature = tiny}, generator(9)), made);
  }
}

TEST(Generate, SeedDecidesTheDraws) {
  const auto model = small_model();
  const GenerateOptions options{.count = 30, .temperature = 2};
  const auto made = generate(*model, kPrompt, options, generator(1));
  EXPECT_EQ(generate(*model, kPrompt, options, generator(1)), made);
  EXPECT_NE(generate(*model, kPrompt, options, generator(2)), made);
  EXPECT_TRUE(generate(*model, kPrompt, {.count = 0}, generator(1)).empty());
}

TEST(Generate, DrawsFollowTheSoftmaxOfTheTopK) {
  const auto model = small_model();
  const int64_t draws = 2000;
  const double temperature = 4;
  const at::Tensor logits = model->forward(at::tensor(kPrompt, at::kLong).unsqueeze(0))[0][-1];  // (vocabulary)
  const auto [kept, tokens] = logits.topk(3);
  const at::Tensor expected = at::softmax(kept / temperature, -1);
  at::Tensor counts = at::zeros({kSmall.vocabulary});
  const at::Generator random = generator(5);
  for (int64_t i = 0; i < draws; ++i) {
    counts[generate(*model, kPrompt, {.count = 1, .temperature = temperature, .top_k = 3}, random)[0]] += 1;
  }
  const at::Tensor shares = counts.index_select(0, tokens) / draws;
  EXPECT_NEAR(shares.sum().item<double>(), 1, 1e-6);
  EXPECT_LT((shares - expected).abs().max().item<double>(), 4 * 0.5 / std::sqrt(draws));
}

TEST(Generate, ExcludesPaddingTokens) {
  const auto model = small_model();
  const GenerateOptions options{.count = 200, .temperature = 100, .vocabulary = 4};
  const auto made = generate(*model, std::vector<int64_t>{11}, options, generator(1));
  EXPECT_EQ(std::set<int64_t>(made.begin(), made.end()), (std::set<int64_t>{0, 1, 2, 3}));
}

TEST(Generate, ErrorsSayWhatWasReceived) {
  const auto model = small_model();
  const auto make = [&](const std::vector<int64_t>& prompt, const GenerateOptions& options) {
    generate(*model, prompt, options, generator(1));
  };
  EXPECT_INPUT_ERROR(make({}, {}), "generate: the prompt is empty, it needs at least one token");
  EXPECT_INPUT_ERROR(make({12}, {}), "generate: prompt token 12 is outside the vocabulary of 12");
  EXPECT_INPUT_ERROR(make({-1}, {}), "generate: prompt token -1 is outside the vocabulary of 12");
  EXPECT_INPUT_ERROR(make({1}, {.count = -1}), "generate: count must be in 0..16777216, got -1");
  EXPECT_INPUT_ERROR(make({1}, {.count = int64_t{1} << 62}), "generate: count must be in 0..16777216, got ");
  EXPECT_INPUT_ERROR(make({1}, {.temperature = -2}), "generate: temperature must be finite and >= 0, got -2");
  EXPECT_INPUT_ERROR(make({1}, {.top_k = -3}), "generate: top_k must be >= 0, got -3");
  EXPECT_INPUT_ERROR(make({1}, {.vocabulary = -4}), "generate: vocabulary must be >= 0, got -4");
  EXPECT_INPUT_ERROR(make({1}, {.vocabulary = 13}), "generate: vocabulary must be at most the model's 12, got 13");
}

TEST(Generate, AModelThatDivergedIsNamed) {
  const auto model = small_model();
  const at::NoGradGuard no_grad;
  model->parameters().front()[0][0].fill_(std::nan(""));
  for (const double temperature : {0., 1.}) {
    EXPECT_INPUT_ERROR(generate(*model, kPrompt, {.temperature = temperature}, generator(1)),
                       "generate: the model's logits hold NaN or Inf; its weights are damaged or have diverged");
  }
}

}  // namespace
}  // namespace gluon::lab
