// Normalised directions in the optimizer: against the papers' formulas in float64, in states, and beside everything else.

#include <ATen/ATen.h>

#include <cmath>

#include "gluon/geometry/presets.h"
#include "gluon/plan/step_plan.h"
#include "gluon/update/fused_executor.h"
#include "gluon/update/plain_executor.h"
#include "tests/expect_error.h"
#include "tests/update/models.h"

namespace gluon {
namespace {

constexpr double kRadius = 0.1, kBeta2 = 0.9;

Geometry normalized_by(const std::string& name, const std::string& split = "") {
  Rule hidden{.role = Role::kHidden, .norm = "scaled(sqrt(n/m),spectral)", .normalize = name, .radius = kRadius};
  hidden.split = split;
  return Geometry({hidden,
                   {.role = Role::kConv, .norm = "spectral", .normalize = name, .radius = kRadius},
                   {.norm = "euclidean", .normalize = name, .radius = kRadius}},
                  Momentum::nesterov(0.5));
}

// Square, tall and wide, a row, a column, a stack of experts, a convolution and a vector.
std::vector<Layer> make_layers(at::ScalarType type = at::kDouble) {
  return {{"square", random_tensor({6, 6}, 1, type)},
          {"tall", random_tensor({12, 6}, 2, type)},
          {"row", random_tensor({1, 9}, 3, type)},
          {"column", random_tensor({9, 1}, 4, type)},
          {"experts", random_tensor({3, 6, 12}, 5, type)},
          {"conv", random_tensor({8, 3, 3, 3}, 6, type), Role::kConv},
          {"gain", random_tensor({5}, 7, type), Role::kVector}};
}

// The formulas for one matrix of a layer, with v in units of the direction itself and momentum nesterov(0.5).
struct Reference {
  Reference(Block its_block, NormPtr its_norm, bool its_rows)
      : block(std::move(its_block)), norm(std::move(its_norm)), rows(its_rows) {
    x = matrix(block.layer.parameter);
    momentum = at::zeros_like(x);
    v = at::zeros({block.shape.rows, rows ? 1 : block.shape.cols}, at::kDouble);
  }

  at::Tensor matrix(const at::Tensor& whole) const {
    return block.of(whole).to(at::kDouble).reshape({block.shape.rows, block.shape.cols}).clone();
  }

  void step() {
    const at::Tensor g = matrix(block.layer.parameter.grad());
    momentum = 0.5 * momentum + 0.5 * g;
    const at::Tensor o = norm->lmo((0.5 * momentum + 0.5 * g).unsqueeze(0))[0];
    v = kBeta2 * v + (1 - kBeta2) * (rows ? o.square().mean(1, true) : o.square());
    const at::Tensor n = o / v.sqrt();
    x = x + kRadius * n * (o.norm() / n.norm());
  }

  Block block;
  NormPtr norm;
  bool rows;
  at::Tensor x, momentum, v;
};

void expect_formula(const std::string& name, std::vector<Layer> layers, const std::string& split, double tolerance) {
  const Geometry geometry = normalized_by(name, split);
  std::vector<Reference> references;
  for (const StepPlan::Batch& batch : route(layers, geometry, {.orthogonalizer = "svd"}).batches) {
    for (const Block& block : batch.blocks) references.emplace_back(block, batch.norm, name.starts_with("normuon"));
  }
  Optimizer optimizer(layers, geometry, quiet());
  for (int step = 0; step < 20; ++step) {
    quadratic_loss(layers);
    for (Reference& reference : references) reference.step();
    optimizer.step();
    for (const Reference& reference : references) {
      const at::Tensor x = reference.matrix(reference.block.layer.parameter);
      EXPECT_LT((x - reference.x).norm().item<double>(), tolerance) << reference.block.name << " step " << step;
    }
  }
}

TEST(NormalizeStep, IsThePapersFormulaOverManySteps) {
  for (const char* name : {"normuon(0.9)", "adamuon(0.9)"}) expect_formula(name, make_layers(), "", 1e-9);
}

TEST(NormalizeStep, EveryBlockHasItsOwnSecondMoments) {
  for (const char* split : {"rows:3", "columns:2", "rows:2,4,12", "columns:1,5"}) {
    for (const char* name : {"normuon(0.9)", "adamuon(0.9)"}) {
      expect_formula(name, {{"qkv", random_tensor({18, 6}, 1, at::kDouble)}}, split, 1e-9);
    }
  }
}

TEST(NormalizeStep, SplitsAndExpertsStepAsLayersOfTheirOwn) {
  for (const char* name : {"normuon(0.9)", "adamuon(0.9)"}) {
    std::vector<Layer> whole{{"qkv", random_tensor({12, 6}, 1)}, {"experts", random_tensor({2, 6, 9}, 2)}};
    std::vector<Layer> apart;
    for (int64_t i = 0; i < 2; ++i) {
      apart.push_back({join("part", i), whole[0].parameter.narrow(0, 6 * i, 6).clone()});
      apart.push_back({join("expert", i), whole[1].parameter[i].clone()});
    }
    const Geometry cut = normalized_by(name).with_first({.pattern = "qkv",
                                                         .norm = "scaled(sqrt(n/m),spectral)",
                                                         .normalize = name,
                                                         .radius = kRadius,
                                                         .split = "rows:2"});
    Optimizer optimizer(whole, cut, quiet()), other(apart, normalized_by(name), quiet());
    for (int step = 0; step < 5; ++step) {
      quadratic_loss(whole);
      for (std::size_t i = 0; i < 2; ++i) {
        const auto index = static_cast<int64_t>(i);
        apart[2 * i].parameter.mutable_grad() = whole[0].parameter.grad().narrow(0, 6 * index, 6).clone();
        apart[2 * i + 1].parameter.mutable_grad() = whole[1].parameter.grad()[index].clone();
      }
      optimizer.step();
      other.step();
    }
    for (int64_t i = 0; i < 2; ++i) {
      const auto place = static_cast<std::size_t>(2 * i);
      EXPECT_TRUE(apart[place].parameter.equal(whole[0].parameter.narrow(0, 6 * i, 6)));
      EXPECT_TRUE(apart[place + 1].parameter.equal(whole[1].parameter[i]));
    }
  }
}

TEST(NormalizeStep, ScaleOfTheGradientsDoesNotMatter) {
  for (const char* name : {"normuon(0.95)", "adamuon(0.95)"}) {
    std::vector<at::Tensor> expected;
    for (const double scale : {1.0, 1e-30, 1e30}) {
      std::vector<Layer> layers = make_layers(at::kFloat);
      Optimizer optimizer(layers, normalized_by(name), quiet());
      for (uint64_t step = 0; step < 5; ++step) {
        for (std::size_t i = 0; i < layers.size(); ++i) {
          at::Tensor& x = layers[i].parameter;
          x.mutable_grad() = random_tensor(x.sizes(), 100 * step + i) * scale;
        }
        optimizer.step();
      }
      if (expected.empty()) expected = copies_of(layers);
      for (std::size_t i = 0; i < layers.size(); ++i) {
        EXPECT_TRUE(layers[i].parameter.allclose(expected[i], 1e-4, 1e-4)) << layers[i].name << ' ' << scale;
      }
    }
  }
}

TEST(NormalizeStep, ZeroGradientsMoveNothing) {
  for (const char* name : {"normuon(0.95)", "adamuon(0.95)"}) {
    std::vector<Layer> layers = make_layers(at::kFloat);
    const auto start = copies_of(layers);
    Optimizer optimizer(layers, normalized_by(name), quiet());
    for (Layer& layer : layers) layer.parameter.mutable_grad() = at::zeros_like(layer.parameter);
    optimizer.step();
    EXPECT_TRUE(bitwise_equal(layers, start));
  }
}

TEST(NormalizeStep, HalfPrecisionKeepsItsSecondMomentsInFloat32) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    std::vector<Layer> layers = make_layers(type), exact = make_layers(type);
    for (Layer& layer : exact) layer.parameter = layer.parameter.to(at::kDouble);
    Optimizer optimizer(layers, normalized_by("normuon(0.9)"), quiet());
    Optimizer reference(exact, normalized_by("normuon(0.9)"), quiet());
    for (uint64_t step = 0; step < 4; ++step) {
      for (std::size_t i = 0; i < layers.size(); ++i) {
        const at::Tensor g = random_tensor(layers[i].parameter.sizes(), 100 * step + i, type);
        layers[i].parameter.mutable_grad() = g;
        exact[i].parameter.mutable_grad() = g.to(at::kDouble);
      }
      optimizer.step();
      reference.step();
    }
    for (std::size_t i = 0; i < layers.size(); ++i) {
      EXPECT_EQ(layers[i].parameter.scalar_type(), type);
      EXPECT_TRUE(layers[i].parameter.to(at::kDouble).allclose(exact[i].parameter, 2e-2, 2e-2)) << layers[i].name;
    }
    EXPECT_EQ(optimizer.state().tensors.at("normalize.second/tall").scalar_type(), at::kFloat);
  }
}

// ---- the state ----

TEST(NormalizeState, HasOneValuePerRowOrPerEntry) {
  const auto layers = make_layers();
  const auto sizes = [&](const char* name, const std::string& split, const char* layer) {
    return Optimizer(layers, normalized_by(name, split), quiet())
        .state()
        .tensors.at(std::string("normalize.second/") + layer)
        .sizes()
        .vec();
  };
  using Sizes = std::vector<int64_t>;
  EXPECT_EQ(sizes("normuon(0.9)", "", "tall"), (Sizes{12, 1}));
  EXPECT_EQ(sizes("normuon(0.9)", "", "experts"), (Sizes{3, 6, 1}));
  EXPECT_EQ(sizes("normuon(0.9)", "", "conv"), (Sizes{8, 1, 1, 1}));
  EXPECT_EQ(sizes("normuon(0.9)", "", "gain"), (Sizes{5}));
  EXPECT_EQ(sizes("adamuon(0.9)", "", "experts"), (Sizes{3, 6, 12}));
  EXPECT_EQ(sizes("adamuon(0.9)", "", "conv"), (Sizes{8, 3, 3, 3}));
  Optimizer rows(layers, normalized_by("normuon(0.9)"), quiet()), none(layers, normalized_by("none"), quiet());
  Optimizer entries(layers, normalized_by("adamuon(0.9)"), quiet());
  EXPECT_EQ(entries.state_bytes(), 2 * none.state_bytes());
  EXPECT_EQ(rows.state_bytes() - none.state_bytes(), 8 * (6 + 12 + 1 + 9 + 18 + 8 + 5));
  EXPECT_FALSE(none.state().tensors.contains("normalize.second/tall"));
}

// Loads the state of an optimizer with one rule into one with another; both then take the same steps.
void expect_resumes(const Geometry& before, const Geometry& after, const std::vector<Layer>& start, bool same_steps) {
  const auto clone = [&] {
    std::vector<Layer> layers = start;
    for (Layer& layer : layers) layer.parameter = layer.parameter.clone();
    return layers;
  };
  std::vector<Layer> layers = clone(), resumed = clone();
  Optimizer optimizer(layers, before, quiet());
  train(optimizer, layers, 3);
  for (std::size_t i = 0; i < layers.size(); ++i) resumed[i].parameter.copy_(layers[i].parameter);
  const std::vector<Layer> reversed(resumed.rbegin(), resumed.rend());
  Optimizer other(reversed, after, quiet());
  other.load_state(optimizer.state());
  const auto saved = optimizer.state().tensors, loaded = other.state().tensors;
  train(optimizer, layers, 3);
  train(other, resumed, 3);
  if (!same_steps) return;
  for (const auto& [name, tensor] : saved) EXPECT_TRUE(loaded.at(name).equal(tensor)) << name;
  EXPECT_TRUE(bitwise_equal(resumed, copies_of(layers)));
}

TEST(NormalizeState, ResumesBitForBit) {
  for (const char* name : {"normuon(0.9)", "adamuon(0.9)"}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      expect_resumes(normalized_by(name), normalized_by(name), make_layers(type), true);
    }
    const std::vector<Layer> qkv{{"qkv", random_tensor({18, 6}, 1)}, {"more", random_tensor({2, 18, 6}, 2)}};
    for (const char* split : {"rows:3", "columns:2", "rows:2,4,12", "columns:1,5"}) {
      expect_resumes(normalized_by(name, split), normalized_by(name, split), qkv, true);
    }
  }
}

TEST(NormalizeState, SurvivesAnotherSplitAndAnotherNormalisation) {
  const std::vector<Layer> qkv{{"qkv", random_tensor({18, 6}, 1)}};
  for (const char* before : {"", "rows:3", "columns:2", "columns:6"}) {
    for (const char* after : {"", "rows:3", "columns:2", "columns:6"}) {
      for (const char* first : {"normuon(0.9)", "adamuon(0.9)"}) {
        for (const char* second : {"normuon(0.9)", "adamuon(0.9)"}) {
          expect_resumes(normalized_by(first, before), normalized_by(second, after), qkv, false);
        }
      }
    }
  }
  // The mean over the columns of two blocks is that over the columns of the whole.
  std::vector<Layer> layers{{"w", random_tensor({4, 6}, 1, at::kDouble)}};
  Optimizer entries(layers, normalized_by("adamuon(0.9)"), quiet()),
      rows(layers, normalized_by("normuon(0.9)"), quiet());
  Optimizer halves(layers, normalized_by("normuon(0.9)", "columns:2"), quiet());
  train(entries, layers, 2);
  const at::Tensor v = entries.state().tensors.at("normalize.second/w");
  const auto loaded = [&](Optimizer& optimizer, const OptimizerState& state) {
    optimizer.load_state(state);
    return optimizer.state().tensors.at("normalize.second/w");
  };
  EXPECT_TRUE(loaded(rows, entries.state()).allclose(v.mean(1, true), 1e-12));
  EXPECT_TRUE(loaded(halves, entries.state()).narrow(1, 0, 3).allclose(v.narrow(1, 0, 3).mean(1, true), 1e-12));
  EXPECT_TRUE(loaded(rows, halves.state()).allclose(v.mean(1, true), 1e-12));
  EXPECT_TRUE(loaded(entries, rows.state()).allclose(v.mean(1, true).expand({4, 6}), 1e-12));
}

TEST(NormalizeState, BadStatesAreNamed) {
  const std::vector<Layer> layers{{"w", random_tensor({4, 6}, 1)}};
  Optimizer optimizer(layers, normalized_by("normuon(0.9)"), quiet()), plain(layers, normalized_by("none"), quiet());
  OptimizerState state = optimizer.state();
  EXPECT_INPUT_ERROR(optimizer.load_state(plain.state()), "optimizer state: 'normalize.second/w' is missing");
  EXPECT_INPUT_ERROR(plain.load_state(state), "optimizer state: 'normalize.second/w' belongs to no layer");
  state.tensors["normalize.second/w"] = at::zeros({1, 6});
  EXPECT_INPUT_ERROR(optimizer.load_state(state), "'normalize.second/w' has shape [1, 6], expected [4, 1]");
  state.tensors["normalize.second/w"] = at::zeros({4, 1}, at::kLong);
  EXPECT_INPUT_ERROR(optimizer.load_state(state), "'normalize.second/w' must be floating point, got Long");
}

// ---- beside other parts of the step ----

class Watcher : public StepObserver {
 public:
  void after_step(const BatchStep& batch) override { steps.push_back(batch); }
  std::vector<BatchStep> steps;
};

TEST(NormalizeStep, TheDualNormStaysThatOfTheLmo) {
  for (const char* name : {"none", "normuon(0.9)", "adamuon(0.9)"}) {
    std::vector<Layer> layers{{"w", random_tensor({4, 6}, 1, at::kDouble)}};
    Optimizer optimizer(layers, normalized_by(name), quiet());
    const auto watcher = std::make_shared<Watcher>();
    optimizer.add_observer(watcher);
    at::Tensor before;
    for (int step = 0; step < 2; ++step) {
      before = layers[0].parameter.clone();
      train(optimizer, layers);
    }
    const BatchStep& seen = watcher->steps.back();
    EXPECT_TRUE(seen.direction.equal(seen.norm->lmo(seen.momentum)));
    EXPECT_TRUE(seen.momentum_dual_norm().allclose(seen.norm->dual_norm(seen.momentum), 1e-12));
    EXPECT_EQ(seen.heading.equal(seen.direction), std::string(name) == "none");
    EXPECT_TRUE((layers[0].parameter - before).allclose(kRadius * seen.heading[0], 1e-12));
    EXPECT_NEAR(seen.heading.norm().item<double>(), seen.direction.norm().item<double>(), 1e-12);
  }
}

TEST(NormalizeStep, RadiusRulesReadTheLmo) {
  std::vector<Layer> layers{{"w", random_tensor({4, 6}, 1, at::kDouble)}};
  const Geometry geometry({{.norm = "spectral", .normalize = "normuon(0.9)", .radius = steepest_radius(0.25)}},
                          Momentum::none());
  Optimizer optimizer(layers, geometry, quiet());
  train(optimizer, layers);
  const double dual = make_norm("spectral")->dual_norm(layers[0].parameter.grad().unsqueeze(0)).item<double>();
  EXPECT_NEAR(optimizer.effective_radii()[0].radius, 0.25 * dual, 1e-12);
}

TEST(NormalizeStep, GoesAlongASphereToo) {
  std::vector<Layer> layers{{"w", random_tensor({8, 5}, 1, at::kDouble)}};
  const Geometry geometry({{.norm = "spectral", .normalize = "normuon(0.9)", .radius = kRadius, .sphere = Sphere()}},
                          Momentum::none());
  const at::Tensor start = layers[0].parameter.clone();
  Optimizer optimizer(layers, geometry, quiet());
  train(optimizer, layers);
  const at::Tensor o = make_norm("spectral(svd)")->lmo(layers[0].parameter.grad().unsqueeze(0))[0];
  const at::Tensor n = o / o.norm(2, {1}, true);  // after one step v is a row's own size
  const at::Tensor moved = start / start.norm() + kRadius * n / n.norm();
  EXPECT_TRUE(layers[0].parameter.allclose(std::sqrt(5) * moved / moved.norm(), 1e-10, 1e-12));
}

TEST(NormalizeStep, FusedExecutorLeavesSignsToThePlainOne) {
  for (const auto& [rule, why] :
       {std::pair{Rule{.norm = "max_entry", .normalize = "normuon(0.9)"},
                  "its max_entry direction is normalized by normuon(0.9)"},
        {Rule{.norm = "max_entry", .sphere = 2.0}, "it stays on a sphere with the norm max_entry"}}) {
    std::vector<Layer> layers{{"w", random_tensor({8, 8}, 1, at::kFloat)}};
    std::vector<LayerBatch> made;
    for (const StepPlan::Batch& batch : route(layers, Geometry({rule})).batches) {
      made.emplace_back(batch, rule, Momentum::ema(0.9));
    }
    quadratic_loss(layers);
    FusedExecutor fused(made, 1 << 20);
    EXPECT_TRUE(fused.select({}).empty());
    EXPECT_EQ(fused.why_not(made[0]), why);
  }
  const NormPtr spectral = make_norm("spectral"), signs = make_norm("max_entry");
  for (const Rule& rule : {Rule{.normalize = "adamuon(0.9)"}, Rule{.sphere = 2.0}, Rule{.decay = "cautious(0.1)"}}) {
    EXPECT_EQ(missing_kernels(rule, *spectral), "");
  }
  EXPECT_EQ(missing_kernels(Rule{.decay = "cautious(0.1,warmup(3))"}, *signs), "");
}

}  // namespace
}  // namespace gluon
