// Optimizer::Parts: what an optimizer is made of, and the parts of its step.

#pragma once

#include <set>
#include <string>
#include <vector>

#include "gluon/distributed/layer_owners.h"
#include "gluon/plan/step_plan.h"
#include "gluon/update/adamw.h"
#include "gluon/update/fused_executor.h"
#include "gluon/update/optimizer.h"
#include "gluon/update/plain_executor.h"

namespace gluon {

struct Optimizer::Parts {
  Parts(std::vector<Layer> all_layers, Geometry rules, OptimizerOptions given);

  /// Which executor moves which batch in this step.
  struct Work {
    std::vector<LayerBatch*> fused, plain;
    bool judged_on_device = false;  // the fused executor's verdict covers all gradients of all ranks
  };

  // The parts of a step, in order.
  void check_layers() const;
  void warn_of_missing_gradients();
  StepContext context();
  Work divide(const StepContext& now);
  bool accepts_gradients();  // false: a gradient is not finite and the step is to be skipped
  void warn_of_slow_path(const Work& work);
  void move_adamw_layers(const StepContext& now);

  void refuse_step(const std::string& layer);  // throws or counts, as the options say
  void warn(const std::string& sentence) const;

  // A layer as it was at construction.
  struct Expected {
    std::vector<int64_t> sizes;
    at::ScalarType dtype;
    at::Device device;
  };

  std::vector<Layer> layers;
  Geometry geometry;
  OptimizerOptions options;
  Momentum momentum;
  StepPlan plan;
  std::vector<Expected> expected;  // one per layer
  LayerOwners owners;
  std::vector<LayerBatch> batches;  // this rank's
  PlainExecutor plain;
  FusedExecutor fused;
  AdamW adamw;
  std::vector<std::shared_ptr<StepObserver>> observers;
  std::set<std::string> reported;  // layers whose missing gradient was reported
  RadiusMultipliers radius_multipliers;
  int64_t next_step = 0;  // k of the coming step; one less counts while the last one turns out to be refused
  int64_t skipped = 0;
  bool unfinished = false;  // a step failed after it had begun to move layers
  bool path_reported = false;
};

}  // namespace gluon
