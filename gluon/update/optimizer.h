// Optimizer: the loop. One step takes every layer's gradient to its update,
//
//   gradient -> momentum -> LMO direction -> radius -> update          X_i <- X_i + t_i lmo_i(M_i)
//
// batch by batch (paper: the algorithm "Gluon"; with full gradients and Momentum::none() deterministic Gluon).
// Muon, Scion, unconstrained Scion, sign and normalized descent are geometries (presets.h), not classes.
//
//   auto optimizer = gluon::Optimizer(layers, gluon::presets::unscion(), {.momentum = 0.9});
//   optimizer.zero_grad(); loss.backward(); optimizer.step();

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gluon/core/batch_step.h"
#include "gluon/geometry/geometry.h"
#include "gluon/update/optimizer_options.h"
#include "gluon/update/state.h"

namespace gluon {

struct LayerRadius {
  std::string name;
  double radius = 0;
};

class Optimizer {
 public:
  /// Assigns every layer to a rule of the geometry and allocates the state. Throws InputError on a layer without a
  /// rule, a rule whose pattern matches no layer, a name used twice, a parameter that is not dense floating point, or a
  /// norm that cannot be made.
  ///
  /// With several ranks every layer has one owner, which alone keeps its momentum and moves it: all ranks make the same
  /// optimizer and call step(), state(), load_state() and effective_radii() together. Owners' gradients become the mean
  /// over the ranks (`reduction`).
  Optimizer(std::vector<Layer> layers, Geometry geometry, OptimizerOptions options = {});
  ~Optimizer();
  Optimizer(Optimizer&&) noexcept;  // not copyable: two optimizers would share their momentum
  Optimizer& operator=(Optimizer&&) noexcept;

  /// Moves all layers that have a gradient; the others are skipped and reported once. Gradients stay as they are.
  /// Throws InputError, with nothing changed, on a non-finite gradient (NonFiniteGradient, unless the options skip such
  /// steps), on a parameter whose shape, dtype or device has changed, and on a gradient unlike its parameter. After an
  /// exception inside a norm, a radius rule or an observer, which names it and the layer, some layers may have moved:
  /// the optimizer refuses further steps until load_state().
  ///
  /// When the fused step of a GPU (compute capability 8.0 or later) moves all layers on one rank, none of them AdamW's
  /// and no observer watching the step, step() does not wait for it: the device judges the gradients, a step with a bad
  /// one moves nothing, and the next call of wait() or step() throws. The step is a CUDA graph of its own; calling it
  /// while the caller captures another graph throws InputError.
  void step();

  /// Waits until the gradients of the last step are known to be finite; throws NonFiniteGradient otherwise.
  void wait();

  /// With several ranks: announces that the next `backward_passes` compute the gradients of one step, so that gradients
  /// leave for their owners during the last of them. Without this call they leave in step(). zero_grad() cancels it.
  void begin_gradients(int64_t backward_passes);

  /// With several ranks: gives owners their gradients now instead of in step().
  void reduce_gradients();

  /// Whether this rank moves the layer with this index in layers().
  bool owns(std::size_t layer) const;

  /// Drops the gradients of all layers.
  void zero_grad();

  /// Which rule each group of layers follows, for people.
  std::string routing_report() const;

  /// The radius (AdamW: learning rate) each matrix moved by in its last step, schedule included, in the order of the
  /// layers. Waits for the device.
  std::vector<LayerRadius> effective_radii() const;

  /// A factor on all radii beside the schedule, for schedulers outside. Throws InputError unless finite and >= 0.
  void set_radius_multiplier(double multiplier);
  double radius_multiplier() const;

  /// A further factor on the radii of the layers with this Layer::group. Throws InputError unless finite and >= 0.
  void set_group_radius_multiplier(int64_t group, double multiplier);

  const Momentum& momentum() const;  // the options', or the geometry's own

  /// Another beta for the layers of a group, from the next step on; see Momentum::with_beta(). AdamW keeps its own.
  void set_group_beta(int64_t group, double beta);

  /// Steps that moved the layers, and steps that were skipped for a non-finite gradient. steps_taken() waits until the
  /// last step has been judged.
  int64_t steps_taken() const;
  int64_t steps_skipped() const;
  const std::vector<Layer>& layers() const;
  const OptimizerOptions& options() const;

  void add_observer(std::shared_ptr<StepObserver> observer);

  /// Bytes of momentum and moments that this rank keeps.
  int64_t state_bytes() const;

  /// A copy of everything the optimizer remembers, and its inverse. load_state() throws InputError, with nothing
  /// changed, when the state is newer than this library or does not fit the layers.
  OptimizerState state() const;
  void load_state(const OptimizerState& state);

  /// The part of state() that belongs to the layer with this index in layers(); all ranks call it together.
  OptimizerState layer_state(std::size_t layer) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace gluon
