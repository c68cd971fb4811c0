#include "lab/models/nanogpt.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "tests/expect_error.h"
#include "tests/lab/models/training_checks.h"

namespace gluon::lab {
namespace {

constexpr NanoGptOptions kSmall{.vocabulary = 11, .context = 6, .layers = 2, .width = 8, .heads = 2};

at::Tensor random_tensor(at::IntArrayRef sizes, uint64_t seed) {
  return at::randn(sizes, at::detail::createCPUGenerator(seed), at::kDouble);
}

at::Tensor random_tokens(at::IntArrayRef sizes, int64_t vocabulary, uint64_t seed) {
  return at::randint(0, vocabulary, sizes, at::detail::createCPUGenerator(seed), at::kLong);
}

// In float64, with projections that are not zero, so that every part affects the result.
std::shared_ptr<NanoGpt> small_model() {
  auto model = std::make_shared<NanoGpt>(kSmall, 1);
  model->to(at::kDouble);
  fill_projections(*model, 0.3);
  return model;
}

double largest_difference(const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); }

TEST(RmsNorm, HasMeanSquareOneAndKeepsDirectionAndZero) {
  const at::Tensor x = random_tensor({3, 5, 8}, 1) * 100;
  const at::Tensor y = rms_norm(x);
  EXPECT_LT(largest_difference(y.square().mean(-1), at::ones({3, 5}, at::kDouble)), 1e-12);
  EXPECT_LT(largest_difference(y, rms_norm(7 * x)), 1e-12);
  EXPECT_LT(largest_difference(y * x.square().mean(-1, true).sqrt(), x), 1e-10);
  EXPECT_EQ(rms_norm(at::zeros({2, 4})).abs().max().item<float>(), 0);
}

TEST(CausalAttention, AgreesWithLoops) {
  const int64_t tokens = 7, dimension = 4;
  const at::Tensor q = random_tensor({2, 3, tokens, dimension}, 1);  // (B, H, T, D)
  const at::Tensor k = random_tensor(q.sizes(), 2), v = random_tensor(q.sizes(), 3);
  const at::Tensor got = causal_attention(q, k, v);
  ASSERT_EQ(got.sizes(), q.sizes());
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t h = 0; h < 3; ++h) {
      for (int64_t t = 0; t < tokens; ++t) {
        at::Tensor sum = at::zeros({dimension}, at::kDouble);
        double weights = 0;
        for (int64_t s = 0; s <= t; ++s) {
          const double score = at::dot(q[b][h][t], k[b][h][s]).item<double>() / std::sqrt(dimension);
          weights += std::exp(score);
          sum += std::exp(score) * v[b][h][s];
        }
        EXPECT_LT(largest_difference(got[b][h][t], sum / weights), 1e-12);
      }
    }
  }
}

TEST(CausalAttention, NormalisesRotatesAndAttends) {
  const int64_t tokens = 5, dimension = 6;
  CausalAttention attention(8, dimension);
  const at::Tensor q = random_tensor({2, tokens, 3, dimension}, 4);  // (B, T, H, D)
  const at::Tensor k = random_tensor(q.sizes(), 5), v = random_tensor(q.sizes(), 6);
  const auto heads_first = [](const at::Tensor& x) { return x.transpose(1, 2); };
  const at::Tensor expected = causal_attention(heads_first(attention.rotate(rms_norm(q))),
                                               heads_first(attention.rotate(rms_norm(k))), heads_first(v));
  EXPECT_LT(largest_difference(heads_first(attention(q, k, v)), expected), 1e-12);
  // QK norm: the size of queries and keys does not matter.
  EXPECT_LT(largest_difference(attention(100 * q, k / 50, v), attention(q, k, v)), 1e-10);
}

TEST(CausalAttention, RaisesToTheLargestScoreOfEachHead) {
  const int64_t tokens = 6, dimension = 4;
  at::Tensor q = random_tensor({2, 3, tokens, dimension}, 1);  // (B, H, T, D)
  const at::Tensor k = random_tensor(q.sizes(), 2), v = random_tensor(q.sizes(), 3);
  std::vector<double> expected{-1e9, -1e9, 50};
  for (int64_t b = 0; b < 2; ++b) {
    for (int64_t h = 0; h < 3; ++h) {
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t s = 0; s <= t; ++s) {
          double& largest = expected[static_cast<std::size_t>(h)];
          largest = std::max(largest, at::dot(q[b][h][t], k[b][h][s]).item<double>() / std::sqrt(dimension));
        }
      }
    }
  }
  const at::Tensor largest = at::tensor({-1e9, -1e9, 50.0}, at::kDouble);
  const at::Tensor mixed = causal_attention(q.requires_grad_(), k, v, largest);
  EXPECT_LT(largest_difference(largest, at::tensor(expected, at::kDouble)), 1e-12);
  EXPECT_FALSE(largest.requires_grad());
  EXPECT_TRUE(mixed.equal(causal_attention(q, k, v)));
  causal_attention(q * std::nan(""), k, v, largest);
  EXPECT_TRUE(largest.isnan().all().item<bool>());
}

TEST(CausalAttention, WithoutQkNormOnlyRotates) {
  CausalAttention attention(8, 6, /*qk_norm=*/false);
  const at::Tensor q = random_tensor({2, 5, 3, 6}, 4), k = random_tensor({2, 5, 3, 6}, 5);  // (B, T, H, D)
  const at::Tensor v = random_tensor({2, 5, 3, 6}, 6);
  const auto heads_first = [](const at::Tensor& x) { return x.transpose(1, 2); };
  const at::Tensor expected =
      causal_attention(heads_first(attention.rotate(q)), heads_first(attention.rotate(k)), heads_first(v));
  EXPECT_LT(largest_difference(heads_first(attention(q, k, v)), expected), 1e-12);
  EXPECT_GT(largest_difference(attention(100 * q, k, v), attention(q, k, v)), 1e-2);
}

TEST(CausalAttention, RotatesHalvesByPositionTimesFrequency) {
  CausalAttention attention(5, 4);
  const at::Tensor x = random_tensor({1, 5, 1, 4}, 7);
  const at::Tensor y = attention.rotate(x);
  for (int64_t t = 0; t < 5; ++t) {
    for (int64_t i = 0; i < 2; ++i) {
      const double angle = static_cast<double>(t) / std::pow(10000.0, 2.0 * static_cast<double>(i) / 4);
      const double a = x[0][t][0][i].item<double>(), b = x[0][t][0][i + 2].item<double>();
      EXPECT_NEAR(y[0][t][0][i].item<double>(), a * std::cos(angle) + b * std::sin(angle), 1e-14);
      EXPECT_NEAR(y[0][t][0][i + 2].item<double>(), b * std::cos(angle) - a * std::sin(angle), 1e-14);
    }
  }
}

TEST(CausalAttention, RotatedScoresDependOnRelativePositionOnly) {
  const int64_t tokens = 9, dimension = 8;
  CausalAttention attention(tokens, dimension);
  const auto everywhere = [&](uint64_t seed) {  // one vector at all positions, rotated: (T, D)
    const at::Tensor x = random_tensor({dimension}, seed).expand({1, tokens, 1, dimension});
    return attention.rotate(x).reshape({tokens, dimension});
  };
  const at::Tensor scores = at::mm(everywhere(1), everywhere(2).t());  // (T, T)
  for (int64_t distance = 1 - tokens; distance < tokens; ++distance) {
    const at::Tensor diagonal = scores.diagonal(distance);
    EXPECT_LT(largest_difference(diagonal, diagonal[0]), 1e-13);
  }
  EXPECT_GT(largest_difference(scores.diagonal(1)[0], scores.diagonal(2)[0]), 1e-3);
}

TEST(CausalAttention, TablesFollowTheDtype) {
  CausalAttention attention(4, 4);
  const at::Tensor x = random_tensor({1, 4, 1, 4}, 8);
  const at::Tensor exact = attention.rotate(x);
  EXPECT_EQ(attention.rotate(x.to(at::kFloat)).scalar_type(), at::kFloat);
  EXPECT_TRUE(attention.rotate(x).equal(exact));
}

TEST(NanoGpt, HasTheShapesAndTheParameterCountOfThePaper) {
  const NanoGptOptions paper = nanogpt_options("nanogpt-124m");
  EXPECT_EQ(paper.vocabulary, 50304);
  EXPECT_EQ(paper.context, 1024);
  EXPECT_EQ(paper.head_dimension(), 128);
  const auto parameter_count = [](const NanoGptOptions& o) {
    return o.width * o.vocabulary + 12 * o.layers * o.width * o.width;
  };
  EXPECT_EQ(parameter_count(paper), 123568128);

  NanoGpt model(kSmall);
  const at::Tensor tokens = random_tokens({3, 5}, kSmall.vocabulary, 1);
  EXPECT_EQ(model.features(tokens).sizes(), (at::IntArrayRef{3, 5, 8}));
  EXPECT_EQ(model.forward(tokens).sizes(), (at::IntArrayRef{3, 5, 11}));
  EXPECT_EQ(model.forward(tokens).scalar_type(), at::kFloat);
  EXPECT_EQ(model.loss({tokens, tokens}, 0).dim(), 0);
  int64_t count = 0;
  for (const auto& parameter : model.parameters()) count += parameter.numel();
  EXPECT_EQ(count, parameter_count(kSmall));
}

TEST(NanoGpt, LayersAreNamedAndOrderedAsTheAuthors) {
  const NanoGpt model(kSmall);
  const auto layers = model.layers();
  std::vector<std::string> names;
  for (const Layer& layer : layers) names.push_back(layer.name);
  EXPECT_EQ(names, (std::vector<std::string>{"transformer.h.0.attn.c_q.weight", "transformer.h.0.attn.c_k.weight",
                                             "transformer.h.0.attn.c_v.weight", "transformer.h.0.attn.c_proj.weight",
                                             "transformer.h.0.mlp.c_fc.weight", "transformer.h.0.mlp.c_proj.weight",
                                             "transformer.h.1.attn.c_q.weight", "transformer.h.1.attn.c_k.weight",
                                             "transformer.h.1.attn.c_v.weight", "transformer.h.1.attn.c_proj.weight",
                                             "transformer.h.1.mlp.c_fc.weight", "transformer.h.1.mlp.c_proj.weight",
                                             "transformer.wte.weight"}));
  for (std::size_t i = 0; i + 1 < layers.size(); ++i) EXPECT_EQ(layers[i].role, Role::kHidden);
  EXPECT_EQ(layers.back().role, Role::kEmbedding);
  EXPECT_EQ(layers[4].parameter.sizes(), (at::IntArrayRef{32, 8}));
  EXPECT_EQ(layers[5].parameter.sizes(), (at::IntArrayRef{8, 32}));
  EXPECT_EQ(layers.back().parameter.sizes(), (at::IntArrayRef{11, 8}));
}

TEST(NanoGpt, BlocksStartAsTheIdentity) {
  NanoGpt model(kSmall, 3);
  const at::Tensor tokens = random_tokens({2, 6}, kSmall.vocabulary, 2);
  const at::Tensor embedding = model.layers().back().parameter;
  const at::Tensor x = rms_norm(at::embedding(embedding, tokens));
  EXPECT_TRUE(model.features(tokens).equal(x));
  EXPECT_TRUE(model.forward(tokens).equal(at::linear(x, embedding)));
}

TEST(NanoGpt, StartsAtTheLossOfTheAuthorsRun) {
  // Their log begins with val_loss:16.0102: the tied head predicts its input with logit sqrt(width / 3).
  NanoGptOptions options = nanogpt_options("nanogpt-124m");
  options.layers = 1;
  NanoGpt model(options);
  const at::NoGradGuard no_grad;
  const Batch batch{random_tokens({1, 128}, 50257, 1), random_tokens({1, 128}, 50257, 2)};
  EXPECT_NEAR(model.loss(batch, 0).item<double>(), 16.0102, 0.2);
}

TEST(NanoGpt, SeedsDecideTheParameters) {
  const auto first = NanoGpt(kSmall, 5).parameters(), same = NanoGpt(kSmall, 5).parameters();
  for (std::size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(first[i].equal(same[i]));
  EXPECT_FALSE(first[0].equal(NanoGpt(kSmall, 6).parameters()[0]));
  const at::Tensor query = NanoGpt(kSmall, 5).layers()[0].parameter;
  EXPECT_LE(query.abs().max().item<double>(), 1 / std::sqrt(8.0));
  EXPECT_GT(query.abs().max().item<double>(), 0.9 / std::sqrt(8.0));
}

TEST(NanoGpt, LaterTokensDoNotChangeEarlierLogits) {
  const auto model = small_model();
  at::Tensor tokens = random_tokens({2, 6}, kSmall.vocabulary, 3);
  const at::Tensor before = model->forward(tokens);
  for (int64_t place = 1; place < 6; ++place) {
    at::Tensor changed = tokens.clone();
    changed.select(1, place).add_(1).remainder_(kSmall.vocabulary);
    const at::Tensor after = model->forward(changed);
    EXPECT_LT(largest_difference(after.narrow(1, 0, place), before.narrow(1, 0, place)), 1e-13);
    EXPECT_GT(largest_difference(after.narrow(1, place, 6 - place), before.narrow(1, place, 6 - place)), 1e-3);
  }
  // A shorter sequence is the beginning of a longer one.
  EXPECT_LT(largest_difference(model->forward(tokens.narrow(1, 0, 4)), before.narrow(1, 0, 4)), 1e-13);
}

TEST(NanoGpt, LossIsTheMeanCrossEntropyOfTheTokens) {
  const auto model = small_model();
  const Batch batch{random_tokens({2, 5}, 11, 4), random_tokens({2, 5}, 11, 5)};
  const at::Tensor log_p = at::log_softmax(model->forward(batch.inputs), -1);
  const double picked = -log_p.gather(2, batch.targets.unsqueeze(2)).mean().item<double>();
  EXPECT_NEAR(model->loss(batch, 0).item<double>(), picked, 1e-12);
  EXPECT_NEAR(model->loss(batch, 0.2).item<double>(), 0.8 * picked - 0.2 * log_p.mean().item<double>(), 1e-12);
}

TEST(NanoGpt, GradientsMatchFiniteDifferences) {
  const auto model = small_model();
  expect_gradients(*model, {random_tokens({2, 5}, 11, 6), random_tokens({2, 5}, 11, 7)}, 0);
}

TEST(NanoGpt, GradientsWithoutQkNormMatchFiniteDifferences) {
  NanoGptOptions options = kSmall;
  options.qk_norm = false;
  NanoGpt model(options, 1);
  model.to(at::kDouble);
  fill_projections(model, 0.3);
  const Batch batch{random_tokens({2, 5}, 11, 6), random_tokens({2, 5}, 11, 7)};
  EXPECT_NE(model.loss(batch, 0).item<double>(), small_model()->loss(batch, 0).item<double>());
  expect_gradients(model, batch, 0);
}

TEST(NanoGpt, WatchesTheLargestLogitsOfTrainingPasses) {
  NanoGptOptions options = kSmall;
  options.qk_norm = false;
  NanoGpt model(options, 1);
  const Batch batch{random_tokens({2, 5}, 11, 6), random_tokens({2, 5}, 11, 7)};
  const at::Tensor loss = model.loss(batch, 0);
  const std::vector<AttentionLogits> watched = model.watch_logits();
  ASSERT_EQ(watched.size(), 2u);
  EXPECT_TRUE(watched[1].query.is_same(model.layers()[6].parameter));
  EXPECT_TRUE(watched[1].key.is_same(model.layers()[7].parameter));

  model.eval();
  model.loss(batch, 0);
  EXPECT_EQ(watched[0].largest.max().item<float>(), -INFINITY);
  model.train();
  EXPECT_TRUE(model.loss(batch, 0).equal(loss));
  const at::Tensor once = watched[0].largest.clone();
  EXPECT_TRUE(at::isfinite(once).all().item<bool>());
  EXPECT_FALSE(watched[1].largest.equal(once));
  {
    const at::NoGradGuard no_grad;
    watched[0].query.mul_(2);
  }
  model.loss(batch, 0);
  EXPECT_LT(largest_difference(watched[0].largest, 2 * once), 1e-5);
  EXPECT_TRUE(model.watch_logits()[0].largest.equal(watched[0].largest));
  EXPECT_TRUE(NanoGpt(kSmall).watch_logits().empty());  // QK norm
}

TEST(NanoGpt, UnscionLowersTheLoss) {
  NanoGpt model({.vocabulary = 16, .context = 16, .layers = 2, .width = 32, .heads = 2}, 7);
  const at::Tensor tokens = at::arange(17, at::kLong).remainder(16).repeat({4, 1});  // (4, 17): i + 1 follows i
  const Batch batch{tokens.narrow(1, 0, 16), tokens.narrow(1, 1, 16)};
  const std::vector<double> losses = losses_of_ten_steps(model, batch, 0);
  EXPECT_LT(losses.back(), 0.5 * losses.front());
}

TEST(NanoGpt, ErrorsSayWhatWasReceived) {
  const auto validated = [](auto change) {
    NanoGptOptions options = kSmall;
    change(options);
    NanoGpt model(options);
  };
  EXPECT_INPUT_ERROR(validated([](auto& o) { o.vocabulary = 0; }), "NanoGpt: vocabulary must be > 0, got 0");
  EXPECT_INPUT_ERROR(validated([](auto& o) { o.context = -1; }), "NanoGpt: context must be > 0, got -1");
  EXPECT_INPUT_ERROR(validated([](auto& o) { o.layers = 0; }), "NanoGpt: layers must be > 0, got 0");
  EXPECT_INPUT_ERROR(validated([](auto& o) { o.width = 0; }), "NanoGpt: width must be > 0, got 0");
  EXPECT_INPUT_ERROR(validated([](auto& o) { o.heads = 0; }), "NanoGpt: heads must be > 0, got 0");
  EXPECT_INPUT_ERROR(validated([](auto& o) { o.heads = 3; }),
                     "NanoGpt: heads must divide width, got 3 heads and width 8");
  EXPECT_INPUT_ERROR(validated([](auto& o) { o.heads = 8; }),
                     "NanoGpt: width / heads must be even for rotary positions, got 8 / 8 = 1");
  EXPECT_INPUT_ERROR(nanogpt_options("gpt5"), "NanoGpt: unknown preset 'gpt5'; allowed are nanogpt-124m, nanogpt-tiny");

  NanoGpt model(kSmall);
  const at::Tensor tokens = at::zeros({1, 6}, at::kLong);
  EXPECT_INPUT_ERROR(model.forward(at::zeros({1, 6})), "NanoGpt: expected tokens (B, T) int64, got Float [1, 6]");
  EXPECT_INPUT_ERROR(model.forward(tokens[0]), "NanoGpt: expected tokens (B, T) int64, got Long [6]");
  EXPECT_INPUT_ERROR(model.forward(at::zeros({1, 7}, at::kLong)),
                     "NanoGpt: got 7 tokens in a sequence, the context is 6");
  EXPECT_INPUT_ERROR(model.forward(tokens + 11), "NanoGpt: input token 11 is outside the vocabulary of 11");
  EXPECT_INPUT_ERROR(model.loss({tokens, tokens - 1}, 0), "NanoGpt: target token -1 is outside the vocabulary of 11");
  EXPECT_INPUT_ERROR(model.loss({tokens, tokens[0]}, 0),
                     "NanoGpt: expected one target per token, got inputs [1, 6] and targets [6]");
  EXPECT_INPUT_ERROR(model.loss({tokens, tokens}, 1), "NanoGpt: label smoothing must be in [0, 1), got 1");
}

}  // namespace
}  // namespace gluon::lab
