#include "gluon/gluon.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include <cmath>

#include "gluon/testing/problems.h"
#include "tests/expect_error.h"

namespace gluon {
namespace {

constexpr const char* kNorm = "scaled(2,spectral(svd))";
constexpr double kFactor = 2;

Geometry one_norm(const char* norm, double radius) {
  return Geometry({{.norm = norm, .radius = radius}}, Momentum::none());
}

Problem quadratic(const std::vector<MatrixShape>& shapes, uint64_t seed = 0) {
  return make_problem("quadratic", shapes, seed);
}

Problem single(std::shared_ptr<const LayerObjective> objective, at::Tensor start) {
  return {{std::move(objective)}, {std::move(start)}};
}

// f = <(x - A) H, x - A> / 2 on a tall matrix: zH of an orthogonal direction z has nuclear norm tr(H).
struct TallQuadratic {
  at::Tensor curvature = at::tensor({0.5, 1.0, 3.0, 7.0}, at::kDouble);
  Problem problem =
      single(std::make_shared<Quadratic>(at::zeros({9, 4}, at::kDouble), curvature), at::randn({9, 4}, at::kDouble));
  double l0 = 11.5 / (kFactor * kFactor);
};

std::shared_ptr<Recorder> watch(Optimizer& optimizer, std::span<const Layer> layers, const Geometry& geometry,
                                const RecorderOptions& options) {
  const auto recorder = std::make_shared<Recorder>(layers, geometry, options);
  optimizer.add_observer(recorder);
  return recorder;
}

// Takes `steps` steps; `disturb` changes the gradients to those of the batch with that number. Measures in the norms of
// `measured`, by default in those of the optimizer.
Trajectory record(const Problem& problem, const Geometry& geometry, const RecorderOptions& options, int64_t steps,
                  const std::function<void(std::span<const Layer>, int64_t)>& disturb = {},
                  const std::optional<Geometry>& measured = std::nullopt) {
  const std::vector<Layer> layers = problem.layers();
  Optimizer optimizer(layers, geometry, {.warn = [](const std::string&) {}});
  const auto recorder = watch(optimizer, layers, measured.value_or(measuring_geometry(geometry)), options);
  const auto gradients = [&](int64_t batch) {
    problem.write_gradients(layers);
    if (disturb) disturb(layers, batch);
  };
  for (int64_t k = 0; k < steps; ++k) {
    if (recorder->needs_reference(k)) {
      gradients(k + 1);
      recorder->take_reference();
    }
    gradients(k);
    optimizer.step();
  }
  return recorder->take_samples();
}

void add_noise(std::span<const Layer> layers, int64_t batch) {
  at::manual_seed(static_cast<uint64_t>(batch));
  for (const Layer& layer : layers) layer.parameter.mutable_grad() += at::randn_like(layer.parameter);
}

TEST(Recorder, MeasuresTheCurvatureOfAQuadratic) {
  const TallQuadratic tall;
  const Trajectory trajectory =
      record(tall.problem, one_norm(kNorm, 0.01), {.every = 1, .estimator = Estimator::kFull}, 20);
  EXPECT_EQ(trajectory.estimator, Estimator::kFull);
  ASSERT_EQ(trajectory.layers.size(), 1);
  const LayerTrajectory& layer = trajectory.layers[0];
  EXPECT_EQ(layer.layer, "layer0");
  EXPECT_EQ(layer.group, "hidden");
  EXPECT_EQ(layer.norm, kNorm);
  EXPECT_EQ(layer.dual_method, "exact");
  ASSERT_EQ(layer.samples.size(), 19);
  for (std::size_t i = 0; i < layer.samples.size(); ++i) {
    const Sample& sample = layer.samples[i];
    EXPECT_EQ(sample.step, static_cast<int64_t>(i) + 1);
    EXPECT_NEAR(sample.smoothness / tall.l0, 1, 1e-6);
    EXPECT_NEAR(sample.displacement, 0.01, 1e-12);
    EXPECT_NEAR(sample.radius, 0.01, 1e-15);
    EXPECT_NEAR(sample.alignment, 1, 1e-12);
  }
  EXPECT_NEAR(fit_trajectory(trajectory).layers[0].fit.l0 / tall.l0, 1, 1e-6);
}

TEST(Recorder, MeasuresL1WhereL0IsZero) {
  const at::Tensor slope = at::randn({5, 3}, at::kDouble);
  const double size = make_norm(kNorm)->dual_norm(slope.unsqueeze(0)).item<double>();  // |C|*
  const double radius = 1e-3 / size;
  const Problem problem = single(std::make_shared<Ridge>(Ridge::kExponential, slope), at::zeros({5, 3}, at::kDouble));
  const Trajectory trajectory =
      record(problem, one_norm(kNorm, radius), {.every = 5, .estimator = Estimator::kFull}, 500);
  const Fit fit = fit_trajectory(trajectory).layers[0].fit;
  EXPECT_NEAR(fit.l1 / size, 1, 1e-3);
  EXPECT_NEAR(fit.l1 / (std::expm1(1e-3) / radius), 1, 1e-9);
  EXPECT_NEAR(fit.l0, 0, 1e-6);
}

TEST(Recorder, SameBatchMeasuresCurvatureUnderNoise) {
  const TallQuadratic tall;
  const Geometry geometry = one_norm(kNorm, 1e-3);
  for (const auto& [every, steps, samples] : {std::tuple(3, 20, 7U), {1, 6, 5U}}) {
    const auto same =
        record(tall.problem, geometry, {.every = every, .estimator = Estimator::kSameBatch}, steps, add_noise);
    ASSERT_EQ(same.layers[0].samples.size(), samples);
    for (const Sample& sample : same.layers[0].samples) EXPECT_NEAR(sample.smoothness / tall.l0, 1, 1e-6);
  }
  const auto consecutive =
      record(tall.problem, geometry, {.every = 3, .estimator = Estimator::kConsecutive}, 20, add_noise);
  for (const Sample& sample : consecutive.layers[0].samples) EXPECT_GT(sample.smoothness, 10 * tall.l0);
}

TEST(Recorder, NoPairBeginsBeforeTheStart) {
  const TallQuadratic tall;
  for (const Estimator estimator : {Estimator::kConsecutive, Estimator::kSameBatch}) {
    const RecorderOptions options{.every = 3, .start = 4, .estimator = estimator};
    const Trajectory late = record(tall.problem, one_norm(kNorm, 1e-3), options, 12);
    std::vector<int64_t> steps;
    for (const Sample& sample : late.layers[0].samples) steps.push_back(sample.step);
    EXPECT_EQ(steps, (std::vector<int64_t>{7, 10}));  // pairs begin at 6 and 9
  }
}

TEST(Recorder, DualIsExactOnTheCpuUnlessAnOrthogonalizerIsNamed) {
  const Problem problem = quadratic({{.rows = 24, .cols = 16}}, 3);
  const auto with = [&](const std::string& dual) {
    return record(problem, one_norm("scaled(2,spectral)", 0.01),
                  {.every = 1, .estimator = Estimator::kFull, .dual = dual}, 4)
        .layers[0];
  };
  const LayerTrajectory exact = with("exact"), chosen = with("auto"), close = with("polar_express:10:1e-4");
  EXPECT_EQ(RecorderOptions().dual, "auto");
  EXPECT_EQ(chosen.dual_method, "exact");
  EXPECT_EQ(close.dual_method, "polar_express:10:1e-4");
  EXPECT_EQ(close.norm, exact.norm);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(chosen.samples[i].gradient, exact.samples[i].gradient);
    EXPECT_EQ(chosen.samples[i].smoothness, exact.samples[i].smoothness);
    EXPECT_NEAR(close.samples[i].smoothness / exact.samples[i].smoothness, 1, 1e-3);
  }
}

TEST(Recorder, AutoApproximatesTheExactDualOnAGpu) {
  if (at::getNumGPUs() == 0) GTEST_SKIP() << "no CUDA device";
  at::manual_seed(1);
  std::vector<Layer> layers;
  for (const auto& [m, n] : std::vector<std::pair<int64_t, int64_t>>{{96, 96}, {96, 96}, {320, 80}, {72, 288}}) {
    layers.push_back({"layer" + std::to_string(layers.size()), at::randn({m, n}).cuda(), Role::kHidden});
  }
  Optimizer optimizer(layers, presets::unscion());
  const auto exact = watch(optimizer, layers, presets::unscion(), {.every = 1, .dual = "exact"});
  const auto chosen = watch(optimizer, layers, presets::unscion(), {.every = 1, .dual = "auto"});
  for (int k = 0; k < 3; ++k) {
    for (const Layer& layer : layers) layer.parameter.mutable_grad() = at::randn_like(layer.parameter);
    optimizer.step();
  }
  const Trajectory wanted = exact->take_samples();
  const Trajectory got = chosen->take_samples();
  for (std::size_t i = 0; i < layers.size(); ++i) {
    EXPECT_EQ(wanted.layers[i].dual_method, "exact");
    EXPECT_EQ(got.layers[i].dual_method, "polar_express:8");
    ASSERT_EQ(got.layers[i].samples.size(), 2);
    for (std::size_t k = 0; k < 2; ++k) {
      const Sample& a = got.layers[i].samples[k];
      const Sample& b = wanted.layers[i].samples[k];
      EXPECT_NEAR(a.gradient_change / b.gradient_change, 1, 5e-4);
      EXPECT_NEAR(a.gradient / b.gradient, 1, 5e-4);
      EXPECT_NEAR(a.momentum / b.momentum, 1, 5e-4);
      EXPECT_NEAR(a.alignment / b.alignment, 1, 5e-4);
      EXPECT_NEAR(a.displacement / b.displacement, 1, 1e-6);
    }
  }
}

TEST(Recorder, AdamWLayersAreMeasuredInTheGivenNorms) {
  const Problem problem = quadratic({{.rows = 6, .cols = 4}, {.rows = 6, .cols = 4}, {.rows = 3, .cols = 5}}, 1);
  for (const Geometry& geometry : {presets::adamw(0.01), presets::muon()}) {
    const auto trajectory = record(problem, geometry, {.every = 2, .estimator = Estimator::kFull}, 5);
    ASSERT_EQ(trajectory.layers.size(), 3);
    for (const LayerTrajectory& layer : trajectory.layers) {
      ASSERT_EQ(layer.samples.size(), 2) << layer.layer;
      EXPECT_GT(layer.samples[1].momentum, 0);
      EXPECT_GT(layer.samples[1].alignment, 0);
      EXPECT_LE(layer.samples[1].alignment, 1 + 1e-9);
      EXPECT_EQ(std::isnan(layer.samples[1].radius), geometry.rules()[0].norm.is_adamw()) << layer.layer;
    }
  }
}

TEST(Recorder, RecordingChangesNoWeightAndReleasesMemory) {
  const std::vector<MatrixShape> shapes{{.rows = 6, .cols = 4}, {.rows = 4, .cols = 4}};
  const Problem problem = make_problem("mixed", shapes, 2);
  for (const char* preset : {"unscion", "scion", "muon", "sign_descent", "normalized_descent", "sgd", "adamw"}) {
    const Geometry geometry = presets::make(preset);
    const std::vector<Layer> plain = problem.layers();
    const std::vector<Layer> watched = problem.layers();
    Optimizer plain_optimizer(plain, geometry);
    Optimizer watched_optimizer(watched, geometry);
    const auto recorder = watch(watched_optimizer, watched, presets::normalized_descent(), {.every = 2});
    for (int64_t k = 0; k < 6; ++k) {
      problem.write_gradients(plain);
      problem.write_gradients(watched);
      plain_optimizer.step();
      watched_optimizer.step();
      EXPECT_EQ(recorder->bytes_held(), k % 2 == 0 ? (3 * (24 + 16) + 2) * 8 : 0) << preset;
    }
    for (std::size_t i = 0; i < plain.size(); ++i) {
      EXPECT_TRUE(plain[i].parameter.equal(watched[i].parameter)) << preset;
    }
    EXPECT_EQ(recorder->take_samples().layers[0].samples.size(), 3) << preset;
    EXPECT_TRUE(recorder->take_samples().layers[0].samples.empty());
  }
}

TEST(Recorder, EveryValueOfASampleFollowsItsFormula) {
  at::manual_seed(8);
  std::vector<Layer> layers;
  for (const char* name : {"a", "b", "c"}) {
    layers.push_back({name, at::randn({3, 4}, at::kDouble), Role::kHidden});
  }
  const Geometry geometry({{.norm = "scaled(2,max_entry)", .radius = 0.5}}, Momentum::ema(0.5));
  Optimizer optimizer(layers, geometry, {.schedule = Schedule::warmup(4)});
  const auto recorder =
      watch(optimizer, layers, geometry, {.every = 1, .measures = [](std::size_t i) { return i != 1; }});
  std::vector<at::Tensor> x, g;  // of the last layer
  for (int k = 0; k < 3; ++k) {
    for (const Layer& layer : layers) layer.parameter.mutable_grad() = at::randn({3, 4}, at::kDouble);
    x.push_back(layers[2].parameter.clone());
    g.push_back(layers[2].parameter.grad().clone());
    optimizer.step();
  }
  EXPECT_TRUE(recorder->has_samples());
  const Trajectory trajectory = recorder->take_samples();
  EXPECT_FALSE(recorder->has_samples());
  EXPECT_EQ(trajectory.layers[0].samples.size(), 2u);
  EXPECT_EQ(trajectory.layers[1].samples.size(), 0u);
  ASSERT_EQ(trajectory.layers[2].samples.size(), 2u);
  const Sample& sample = trajectory.layers[2].samples[1];
  const auto dual = [](const at::Tensor& y) { return y.abs().sum().item<double>() / 2; };
  const at::Tensor d = x[2] - x[1];
  const double length = 2 * d.abs().max().item<double>();
  EXPECT_EQ(sample.step, 2);
  EXPECT_NEAR(sample.gradient_change, dual(g[2] - g[1]), 1e-12);
  EXPECT_NEAR(sample.displacement, length, 1e-12);
  EXPECT_NEAR(sample.smoothness, dual(g[2] - g[1]) / length, 1e-12);
  EXPECT_NEAR(sample.gradient, dual(g[2]), 1e-12);
  EXPECT_NEAR(sample.momentum, dual(0.25 * g[0] + 0.5 * g[1]), 1e-12);
  EXPECT_NEAR(sample.alignment, -(g[1] * d).sum().item<double>() / (dual(g[1]) * length), 1e-12);
  EXPECT_NEAR(sample.radius, 0.25, 1e-12);
}

TEST(Recorder, DisplacementOnASphereIsTheTrueOne) {
  const double eta = 0.3;
  std::vector<Layer> layers{{"w", 50 * at::randn({6, 4}, at::kDouble)}};
  const Geometry geometry({{.norm = kNorm, .radius = eta, .sphere = Sphere()}}, Momentum::none());
  Optimizer optimizer(layers, geometry);
  const auto recorder = watch(optimizer, layers, measuring_geometry(geometry), {.every = 1});
  std::vector<at::Tensor> x;
  for (int k = 0; k < 4; ++k) {
    layers[0].parameter.mutable_grad() = at::randn({6, 4}, at::kDouble);
    x.push_back(layers[0].parameter.clone());
    optimizer.step();
  }
  const Trajectory trajectory = recorder->take_samples();
  ASSERT_EQ(trajectory.layers[0].samples.size(), 3u);
  for (std::size_t k = 0; k < 3; ++k) {  // the first step also brings the weights onto the sphere
    const Sample& sample = trajectory.layers[0].samples[k];
    const double length = make_norm(kNorm)->norm((x[k + 1] - x[k]).unsqueeze(0)).item<double>();
    EXPECT_NEAR(sample.displacement / length, 1, 1e-12);
    EXPECT_EQ(sample.radius, eta);
  }
  EXPECT_GT(trajectory.layers[0].samples[0].displacement, 10);
  EXPECT_LT(trajectory.layers[0].samples[2].displacement, 0.5);
}

TEST(Recorder, DisplacementAlongANormalisedDirectionIsTheTrueOne) {
  const double t = 0.3;
  std::vector<Layer> layers{{"w", at::randn({6, 4}, at::kDouble)}};
  const Geometry geometry({{.norm = kNorm, .normalize = "adamuon(0.9)", .radius = t, .decay = "cautious(0.1)"}},
                          Momentum::none());
  Optimizer optimizer(layers, geometry);
  const auto recorder = watch(optimizer, layers, measuring_geometry(geometry), {.every = 1});
  std::vector<at::Tensor> x, g;
  for (int k = 0; k < 4; ++k) {
    layers[0].parameter.mutable_grad() = at::randn({6, 4}, at::kDouble);
    g.push_back(layers[0].parameter.grad().clone());
    x.push_back(layers[0].parameter.clone());
    optimizer.step();
  }
  const Trajectory trajectory = recorder->take_samples();
  ASSERT_EQ(trajectory.layers[0].samples.size(), 3u);
  for (std::size_t k = 0; k < 3; ++k) {
    const Sample& sample = trajectory.layers[0].samples[k];
    const double length = make_norm(kNorm)->norm((x[k + 1] - x[k]).unsqueeze(0)).item<double>();
    EXPECT_NEAR(sample.displacement / length, 1, 1e-12);
    EXPECT_GT(std::abs(length - t), 0.01);  // a step of radius t is no longer one of length t
    EXPECT_EQ(sample.radius, t);
    // The momentum's dual norm is the LMO's, whatever the layer moves along.
    EXPECT_NEAR(sample.momentum / make_norm(kNorm)->dual_norm(g[k].unsqueeze(0)).item<double>(), 1, 1e-12);
  }
}

TEST(Recorder, LeavesOutLayersThatDidNotMove) {
  const auto disturb = [](std::span<const Layer> layers, int64_t batch) {
    layers[0].parameter.mutable_grad() = at::Tensor();
    if (batch == 0) layers[1].parameter.mutable_grad().zero_();
  };
  const Trajectory trajectory =
      record(quadratic({{.rows = 3, .cols = 3}, {.rows = 3, .cols = 3}, {.rows = 3, .cols = 3}}, 4),
             one_norm(kNorm, 0.1), {.every = 1}, 3, disturb);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(trajectory.layers[i].samples.size(), i);
}

TEST(Recorder, DifferentSplitLeavesMomentumMissing) {
  const auto cut_by = [](const char* text) {
    return Geometry(std::vector<Rule>{{.norm = "spectral", .radius = 0.01, .split = text}});
  };
  for (const int64_t columns : {8, 4}) {  // with 4 the parts have the same length
    const Trajectory trajectory = record(quadratic({{.rows = 4, .cols = columns}}, 5), cut_by("rows:2"), {.every = 1},
                                         3, {}, cut_by("columns:2"));
    ASSERT_EQ(trajectory.layers.size(), 2u);
    ASSERT_EQ(trajectory.layers[0].samples.size(), 2u);
    EXPECT_TRUE(std::isnan(trajectory.layers[0].samples[0].momentum));
    EXPECT_GT(trajectory.layers[0].samples[0].smoothness, 0);
  }
}

TEST(Recorder, RuleWithItsOwnOrthogonalizerUsesTheExactDual) {
  const std::vector<Layer> layers = quadratic({{.rows = 4, .cols = 3}}).layers();
  const Recorder recorder(layers, one_norm(kNorm, 0.1), {.dual = "polar_express:8"});
  EXPECT_EQ(recorder.measured().layers[0].dual_method, "exact");
}

TEST(GatherSamples, EveryValueArrivesInItsLayer) {
  const auto sample = [](int64_t step) {
    const auto base = static_cast<double>(10 * step);
    return Sample{step, base + 1, base + 2, base + 3, base + 4, base + 5, base + 6, base + 7};
  };
  const auto values = [](const Sample& s) {
    return std::tuple(s.step, s.gradient_change, s.displacement, s.smoothness, s.gradient, s.momentum, s.alignment,
                      s.radius);
  };
  const Trajectory mine{Estimator::kFull,
                        {{"a", "hidden", "spectral", "exact", {sample(1), sample(2)}},
                         {"b", "hidden", "rows", "exact", {}},
                         {"c", "head", "max_entry", "exact", {sample(3)}}}};
  const Trajectory all = gather_samples(*make_collective("single", {}), mine);
  EXPECT_EQ(all.estimator, Estimator::kFull);
  ASSERT_EQ(all.layers.size(), 3u);
  for (std::size_t i = 0; i < all.layers.size(); ++i) {
    EXPECT_EQ(all.layers[i].layer, mine.layers[i].layer);
    EXPECT_EQ(all.layers[i].norm, mine.layers[i].norm);
    ASSERT_EQ(all.layers[i].samples.size(), mine.layers[i].samples.size());
    for (std::size_t k = 0; k < all.layers[i].samples.size(); ++k) {
      EXPECT_EQ(values(all.layers[i].samples[k]), values(mine.layers[i].samples[k]));
    }
  }
}

}  // namespace
}  // namespace gluon
