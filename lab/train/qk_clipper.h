// QkClipper: QK-clip (gluon/update/qk_clip.h) in a training step.
//
//   begin_step() -> passes of the step -> take_logits() -> update -> clip()
//
// The logits are the largest of all batches, parts and ranks of the step, so that all ranks scale their copies of the
// weights by the same factors, whatever their number. Passes between take_logits() and clip() do not count. Nothing is
// left after a step that a checkpoint would have to hold. A smoothness sample sees the clip as part of the
// displacement: X_{k+1} and g_{k+1} are those after it.

#pragma once

#include <vector>

#include "gluon/distributed/collective.h"
#include "lab/models/model.h"

namespace gluon::lab {

class QkClipper {
 public:
  /// `model` is on its device and has attention without QK norm.
  QkClipper(Model& model, double tau, CollectivePtr collective);

  /// Forgets all logits.
  void begin_step();

  /// Takes the logits since begin_step(); all ranks call it together.
  void take_logits();

  /// Scales the projections of the heads whose logits exceeded tau.
  void clip() const;

 private:
  const std::vector<AttentionLogits> layers_;
  const double tau_;
  const CollectivePtr collective_;
  torch::Tensor logits_;  // (heads of all layers)
};

}  // namespace gluon::lab
