// Norms, radius rules and observers of the user's own inside a step.

#include <ATen/ATen.h>

#include <stdexcept>

#include "gluon/geometry/presets.h"
#include "gluon/update/optimizer.h"
#include "tests/expect_error.h"
#include "tests/update/models.h"

namespace gluon {
namespace {

// Fails in its second call.
class FailingNorm : public Norm {
 public:
  std::string name() const override { return "failing"; }

 protected:
  at::Tensor compute_norm(const at::Tensor& x) const override { return x.abs().amax({1, 2}); }
  at::Tensor compute_dual_norm(const at::Tensor& g) const override { return g.abs().sum({1, 2}); }
  at::Tensor compute_lmo(const at::Tensor& g) const override {
    if (++calls_ == 2) throw std::runtime_error("no convergence");
    return g.sign().neg();
  }

 private:
  mutable int calls_ = 0;
};

TEST(UserCode, FailedStepRequiresALoadedState) {
  std::vector<Layer> layers{{"a", at::ones({2, 2})}, {"b", at::ones({3, 3})}};
  Optimizer optimizer(layers, Geometry({{.norm = std::make_shared<FailingNorm>()}}), quiet());
  const OptimizerState start = optimizer.state();
  quadratic_loss(layers);
  EXPECT_THROW(optimizer.step(), std::runtime_error);
  EXPECT_INPUT_ERROR(optimizer.step(), "an earlier step failed halfway; load a state before the next one");
  optimizer.load_state(start);
  optimizer.step();
  EXPECT_EQ(optimizer.steps_taken(), 1);
}

// One radius for the whole batch instead of one per matrix.
class WrongShapeRadius : public RadiusRule {
 public:
  at::Tensor radius(const BatchStep&) const override { return at::ones({}); }
  std::string name() const override { return "wrong"; }
};

class FailingObserver : public StepObserver {
 public:
  void after_step(const BatchStep&) override { throw std::runtime_error("disk full"); }
};

TEST(UserCode, ExceptionsOfUserCodeNameItAndTheLayer) {
  std::vector<Layer> layers{{"a", at::ones({2, 2})}, {"b", at::ones({3, 3})}};
  quadratic_loss(layers);
  const auto message = [](Optimizer& optimizer) -> std::string {
    try {
      optimizer.step();
    } catch (const std::exception& error) {
      return error.what();
    }
    return "no exception";
  };
  Optimizer failing_norm(layers, Geometry({{.norm = std::make_shared<FailingNorm>()}}), quiet());
  EXPECT_EQ(message(failing_norm), "norm failing, layer 'b': no convergence");
  Optimizer observed(layers, Geometry({{.norm = "rows"}}), quiet());
  observed.add_observer(std::make_shared<FailingObserver>());
  EXPECT_EQ(message(observed), "observer of norm rows, layer 'a': disk full");
  Optimizer wrong(layers, Geometry({{.norm = "rows", .radius = Radius(std::make_shared<WrongShapeRadius>())}}),
                  quiet());
  EXPECT_INPUT_ERROR(wrong.step(), "radius rule wrong, layer 'a': expected one radius per matrix, [1], got []");
}

// Counts the calls for steps that it watches.
class EveryOtherStep : public StepObserver {
 public:
  void before_step(int64_t step) override { before.push_back(step); }
  bool watches(int64_t step) const override { return step % 2 == 1; }
  void after_step(const BatchStep& batch) override { after.push_back(batch.step); }
  std::vector<int64_t> before, after;
};

TEST(UserCode, ObserversSeeOnlyTheStepsTheyWatch) {
  std::vector<Layer> layers{{"w", at::ones({2, 2})}, {"v", at::ones({2}), Role::kVector}};
  Optimizer optimizer(layers, presets::muon(), quiet());
  const auto observer = std::make_shared<EveryOtherStep>();
  optimizer.add_observer(observer);
  train(optimizer, layers, 4);
  EXPECT_EQ(observer->before, (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(observer->after, (std::vector<int64_t>{1, 1, 3, 3}));  // the matrix, and AdamW's layer
}

}  // namespace
}  // namespace gluon
