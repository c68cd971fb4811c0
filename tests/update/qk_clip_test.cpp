#include "gluon/update/qk_clip.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "gluon/geometry/presets.h"
#include "tests/expect_error.h"
#include "tests/update/models.h"

namespace gluon {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

at::Tensor doubles(const std::vector<double>& values) { return at::tensor(values, at::kDouble); }

// Row block h of `heads` equal ones.
at::Tensor head(const at::Tensor& x, int64_t h, int64_t heads) {
  return x.narrow(0, h * x.size(0) / heads, x.size(0) / heads);
}

TEST(QkClip, ClosedForm) {
  const at::Tensor query = at::full({4, 3}, 8.0, at::kDouble), key = at::full({4, 3}, 6.0, at::kDouble);
  const at::Tensor gamma = qk_clip(query, key, doubles({400, 25}), {.tau = 100});
  EXPECT_TRUE(gamma.equal(doubles({0.25, 1})));
  // sqrt(1/4) on both sides.
  EXPECT_TRUE(head(query, 0, 2).equal(at::full({2, 3}, 4.0, at::kDouble)));
  EXPECT_TRUE(head(key, 0, 2).equal(at::full({2, 3}, 3.0, at::kDouble)));
  EXPECT_TRUE(head(query, 1, 2).equal(at::full({2, 3}, 8.0, at::kDouble)));
  EXPECT_TRUE(head(key, 1, 2).equal(at::full({2, 3}, 6.0, at::kDouble)));
}

TEST(QkClip, AlphaSharesTheFactor) {
  for (const double alpha : {0.0, 0.25, 1.0}) {
    const at::Tensor query = at::ones({2, 3}, at::kDouble), key = at::ones({2, 3}, at::kDouble);
    qk_clip(query, key, doubles({16}), {.tau = 1, .alpha = alpha});
    EXPECT_NEAR(query[0][0].item<double>(), std::pow(1.0 / 16, alpha), 1e-15);
    EXPECT_NEAR(key[0][0].item<double>(), std::pow(1.0 / 16, 1 - alpha), 1e-15);
  }
}

TEST(QkClip, HeadsUpToTauKeepTheirBits) {
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble}) {
    const at::Tensor query = random_tensor({12, 5}, 1).to(type), key = random_tensor({12, 5}, 2).to(type);
    const at::Tensor old_query = query.clone(), old_key = key.clone();
    // 100 itself, zero, negative, and no logit at all.
    qk_clip(query, key, at::tensor({100.F, 0.F, -1e30F, -INFINITY}));
    EXPECT_TRUE(query.equal(old_query) && key.equal(old_key)) << type;
    qk_clip(query, key, at::tensor({1.F, 100.5F, 1.F, 1.F}));
    for (int64_t h = 0; h < 4; ++h) {
      EXPECT_EQ(head(query, h, 4).equal(head(old_query, h, 4)), h != 1) << type;
      EXPECT_EQ(head(key, h, 4).equal(head(old_key, h, 4)), h != 1) << type;
    }
  }
}

TEST(QkClip, HalfPrecisionIsRoundedOnce) {
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    const at::Tensor query = random_tensor({6, 50}, 1).to(type), key = random_tensor({6, 50}, 2).to(type);
    const auto factor = at::tensor({100.F / 130.F}).sqrt();
    const at::Tensor expected = (query.to(at::kFloat) * factor).to(type);
    const at::Tensor gamma = qk_clip(query, key, at::tensor({130.F, 130.F, 130.F}).to(type), {});
    EXPECT_EQ(gamma.scalar_type(), at::kFloat);
    EXPECT_TRUE(query.equal(expected)) << type;
  }
}

TEST(QkClip, ABadLogitLeavesItsHeadAndIsReported) {
  const at::Tensor query = random_tensor({4, 5}, 1), key = random_tensor({4, 5}, 2);
  const at::Tensor old_query = query.clone(), old_key = key.clone();
  const at::Tensor gamma = qk_clip(query, key, doubles({kNan, kInf, 5, 200}), {.tau = 50});
  for (int64_t h = 0; h < 4; ++h) EXPECT_EQ(std::isnan(gamma[h].item<float>()), h < 2) << h;
  EXPECT_EQ(gamma[3].item<float>(), 0.25F);
  EXPECT_TRUE(query.narrow(0, 0, 3).equal(old_query.narrow(0, 0, 3)));
  EXPECT_TRUE(key.narrow(0, 0, 3).equal(old_key.narrow(0, 0, 3)));
  EXPECT_TRUE(query[3].equal(old_query[3] / 2) && key[3].equal(old_key[3] / 2));
}

TEST(QkClip, SharedKeyHeadsStayAndTheirQueriesTakeTheWholeFactor) {
  const at::Tensor query = at::ones({8, 3}, at::kDouble), key = at::ones({4, 3}, at::kDouble);  // 4 and 2 heads
  qk_clip(query, key, doubles({50, 200, 400, 100}));
  EXPECT_TRUE(key.equal(at::ones({4, 3}, at::kDouble)));
  EXPECT_TRUE(query.select(1, 0).equal(doubles({1, 1, 0.5, 0.5, 0.25, 0.25, 1, 1})));
}

TEST(QkClip, ScalesRowsOfAFusedWeightTransposedWeightsAndBiases) {
  const at::Tensor plain_query = random_tensor({4, 4}, 1), plain_key = random_tensor({4, 4}, 2);
  const at::Tensor fused = at::cat({plain_query, plain_key, random_tensor({4, 4}, 3)});  // (3 n, n)
  const at::Tensor transposed = fused.t().contiguous();                                  // (n, 3 n)
  const at::Tensor value = fused.narrow(0, 8, 4).clone(), logits = doubles({150, 90});
  qk_clip(plain_query, plain_key, logits);
  qk_clip(fused.narrow(0, 0, 4), fused.narrow(0, 4, 4), logits);
  qk_clip(transposed.narrow(1, 0, 4).t(), transposed.narrow(1, 4, 4).t(), logits);
  EXPECT_TRUE(fused.equal(at::cat({plain_query, plain_key, value})));
  EXPECT_TRUE(transposed.equal(fused.t()));

  const at::Tensor query_bias = at::ones({4}, at::kDouble), key_bias = at::ones({4}, at::kDouble);
  qk_clip(query_bias, key_bias, doubles({400, 1}));
  EXPECT_TRUE(query_bias.equal(doubles({0.5, 0.5, 1, 1})) && key_bias.equal(query_bias));
}

TEST(QkClip, ParametersThatNeedGradientsAreScaled) {
  at::Tensor query = at::ones({2, 2}).requires_grad_(), key = at::ones({2, 2}).requires_grad_();
  const at::Tensor gamma = qk_clip(query, key, at::tensor({400.F}));
  EXPECT_TRUE(query.is_leaf() && !gamma.requires_grad());
  EXPECT_EQ(query[0][0].item<float>(), 0.5F);
}

TEST(QkClip, ErrorsSayWhatWasReceived) {
  const at::Tensor query = at::ones({8, 3}), key = at::ones({8, 3}), logits = at::full({4}, 1e3);
  EXPECT_INPUT_ERROR(qk_clip(query, key, logits, {.tau = 0}), "qk_clip: tau must be in 1e-30..1e+30, got 0");
  EXPECT_INPUT_ERROR(qk_clip(query, key, logits, {.tau = kInf}), "qk_clip: tau must be in 1e-30..1e+30, got inf");
  EXPECT_INPUT_ERROR(qk_clip(query, key, logits, {.alpha = 1.5}), "qk_clip: alpha must be in [0, 1], got 1.5");
  EXPECT_INPUT_ERROR(qk_clip(query, key, at::ones({4}, at::kLong)),
                     "qk_clip: expected max_logits (heads) floating point, got Long [4]");
  EXPECT_INPUT_ERROR(qk_clip(query, key, at::ones({2, 2})), "got Float [2, 2]");
  EXPECT_INPUT_ERROR(qk_clip(query, key, at::ones({0})), "got Float [0]");
  EXPECT_INPUT_ERROR(qk_clip(at::ones({8, 3, 2}), key, logits),
                     "qk_clip: expected query (heads d, n) or (heads d) floating point, got Float [8, 3, 2]");
  EXPECT_INPUT_ERROR(qk_clip(query, key.to(at::kInt), logits), "expected key (heads d, n) or (heads d)");
  EXPECT_INPUT_ERROR(qk_clip(at::ones({6, 3}), key, logits),
                     "qk_clip: expected a multiple of 4 heads as rows of query, got 6");
  for (const int64_t rows : {3, 6, 16}) {
    EXPECT_INPUT_ERROR(qk_clip(query, at::ones({rows, 3}), logits),
                       "qk_clip: expected key heads of 2 rows, as many as 4 query heads or a divisor of that, got " +
                           std::to_string(rows) + " rows of key");
  }
  EXPECT_INPUT_ERROR(qk_clip(query.to(at::kMeta), key, logits),
                     "qk_clip: expected max_logits on the device of query, meta, got cpu");
  EXPECT_TRUE(query.equal(at::ones({8, 3})) && key.equal(at::ones({8, 3})));
}

// The logits of attention on x (T, n), trained to attend to the first token.
struct Attention {
  static constexpr int64_t kHeads = 2, kDimension = 3, kTokens = 5, kWidth = 6;

  at::Tensor query = random_tensor({kHeads * kDimension, kWidth}, 1, at::kDouble).requires_grad_();
  at::Tensor key = random_tensor({kHeads * kDimension, kWidth}, 2, at::kDouble).requires_grad_();
  Optimizer optimizer{{{"q", query}, {"k", key}}, presets::muon({.hidden = 0.2}), quiet()};

  static at::Tensor input(int step) { return random_tensor({kTokens, kWidth}, 10 + step, at::kDouble); }

  // (H, T, T)
  at::Tensor scores(const at::Tensor& x) const {
    const auto heads = [&](const at::Tensor& weight) {
      return at::linear(x, weight).view({kTokens, kHeads, kDimension}).transpose(0, 1);
    };
    return at::bmm(heads(query), heads(key).transpose(1, 2)) / std::sqrt(static_cast<double>(kDimension));
  }

  at::Tensor step(int number) {
    const at::Tensor logits = scores(input(number));
    optimizer.zero_grad();
    at::log_softmax(logits, -1).select(2, 0).sum().neg().backward();  // all attend to the first token
    optimizer.step();
    return logits.detach();
  }
};

TEST(QkClip, AgreesWithLoopsOver20StepsOfAttention) {
  constexpr double kTau = 1;
  Attention clipped, looped, free;
  int clips = 0;
  double largest = 0;
  for (int step = 0; step < 20; ++step) {
    qk_clip(clipped.query, clipped.key, clipped.step(step).amax({1, 2}), {.tau = kTau});

    const at::Tensor logits = looped.step(step);
    largest = std::max(largest, free.step(step).max().item<double>());
    const at::NoGradGuard no_grad;
    for (int64_t h = 0; h < Attention::kHeads; ++h) {
      double s = -kInf;
      for (int64_t i = 0; i < Attention::kTokens; ++i) {
        for (int64_t j = 0; j < Attention::kTokens; ++j) s = std::max(s, logits[h][i][j].item<double>());
      }
      if (s <= kTau) continue;
      ++clips;
      for (at::Tensor weight : {looped.query, looped.key}) {
        for (int64_t row = 0; row < Attention::kDimension; ++row) {
          weight[h * Attention::kDimension + row].mul_(std::sqrt(kTau / s));
        }
      }
    }
    EXPECT_LT((clipped.query - looped.query).abs().max().item<double>(), 1e-10) << step;
    EXPECT_LT((clipped.key - looped.key).abs().max().item<double>(), 1e-10) << step;
  }
  EXPECT_GT(clips, 10);
  EXPECT_GT(largest, 5 * kTau);
}

TEST(QkClip, TheLogitsOfTheSameBatchAreThenTau) {
  Attention attention;
  const at::NoGradGuard no_grad;
  const at::Tensor before = attention.scores(Attention::input(0)).amax({1, 2});
  qk_clip(attention.query, attention.key, before, {.tau = 0.5});
  const at::Tensor after = attention.scores(Attention::input(0)).amax({1, 2});
  EXPECT_LT((after - before.clamp_max(0.5)).abs().max().item<double>(), 1e-12);
}

}  // namespace
}  // namespace gluon
