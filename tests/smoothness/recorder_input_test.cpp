// Recorders with input that is wrong, missing or not finite.

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "gluon/gluon.h"
#include "gluon/testing/problems.h"
#include "tests/expect_error.h"

namespace gluon {
namespace {

Problem quadratic(const std::vector<MatrixShape>& shapes) { return make_problem("quadratic", shapes, 0); }

Geometry exact_spectral() { return Geometry({{.norm = "scaled(2,spectral(svd))", .radius = 0.1}}, Momentum::none()); }

std::shared_ptr<Recorder> watch_one_batch(Optimizer& optimizer, std::span<const Layer> layers) {
  const auto recorder =
      std::make_shared<Recorder>(layers, exact_spectral(), RecorderOptions{.estimator = Estimator::kSameBatch});
  optimizer.add_observer(recorder);
  return recorder;
}

TEST(Recorder, MissingReferenceLeavesTheOptimizerUsable) {
  const Problem problem = quadratic({{.rows = 4, .cols = 3}});
  const std::vector<Layer> layers = problem.layers();
  Optimizer optimizer(layers, exact_spectral());
  const auto recorder = watch_one_batch(optimizer, layers);
  problem.write_gradients(layers);
  EXPECT_INPUT_ERROR(optimizer.step(), "same_batch needs take_reference() before the step");
  recorder->take_reference();
  optimizer.step();
  EXPECT_EQ(optimizer.steps_taken(), 1);
}

// Nobody has judged the reference: a run under --on-nan skip goes on, without that sample.
TEST(Recorder, AReferenceThatIsNotFiniteGivesNoSample) {
  for (const double bad : {std::nan(""), double{INFINITY}}) {
    const Problem problem = quadratic({{.rows = 4, .cols = 3}, {.rows = 4, .cols = 3}});
    const std::vector<Layer> layers = problem.layers();
    Optimizer optimizer(layers, exact_spectral());
    const auto recorder = watch_one_batch(optimizer, layers);
    problem.write_gradients(layers);
    at::Tensor(layers[0].parameter).mutable_grad()[1][2] = bad;
    recorder->take_reference();
    for (int step = 0; step < 2; ++step) {
      problem.write_gradients(layers);
      if (step == 1) recorder->take_reference();
      optimizer.step();
    }
    EXPECT_TRUE(recorder->measured().layers[0].samples.empty());
    const Trajectory samples = recorder->take_samples();
    EXPECT_TRUE(samples.layers[0].samples.empty());
    EXPECT_EQ(samples.layers[1].samples.size(), 1u);
  }
}

TEST(Recorder, BadInput) {
  const std::vector<Layer> layers = quadratic({{.rows = 3, .cols = 3}}).layers();
  EXPECT_INPUT_ERROR(Recorder(layers, presets::adamw()), "layer 'layer0' has no norm");
  EXPECT_INPUT_ERROR(Recorder(layers, presets::unscion(), {.every = 0}), "every must be >= 1, got 0");
  EXPECT_INPUT_ERROR(Recorder(layers, presets::unscion(), {.start = -1}), "start must be >= 0, got -1");
  EXPECT_INPUT_ERROR(Recorder(layers, presets::unscion(), {.estimator = Estimator::kUnknown}),
                     "must be consecutive, full or same_batch");
  EXPECT_INPUT_ERROR(RecorderOptions{.dual = "lanczos"}.validate(), "lanczos");
  std::vector<Layer> twice = layers;
  twice.push_back({"layer0", at::zeros({3, 3}), Role::kHidden});
  EXPECT_INPUT_ERROR(Recorder(twice, presets::unscion()), "two layers are called 'layer0'");
}

}  // namespace
}  // namespace gluon
