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
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gluon/core/batch_step.h"
#include "gluon/distributed/shards.h"
#include "gluon/geometry/geometry.h"
#include "gluon/momentum/momentum.h"
#include "gluon/update/adamw.h"
#include "gluon/update/fused_batches.h"
#include "gluon/update/layer_batch.h"
#include "gluon/update/optimizer_options.h"
#include "gluon/update/radius_multipliers.h"
#include "gluon/update/state.h"

namespace gluon {

struct LayerRadius {
  std::string name;
  double radius;
};

class Optimizer {
 public:
  /// Assigns every layer to a rule of the geometry and allocates the state. Throws InputError on a layer without
  /// a rule, a name used twice, a parameter that is not dense floating point, or a norm that cannot be made.
  ///
  /// With several ranks every layer has one owner, which alone keeps its momentum and moves it (distributed/shards.h):
  /// all ranks make the same optimizer and call step(), state(), load_state() and effective_radii() together. Owners'
  /// gradients become the mean over the ranks (`reduction`).
  Optimizer(std::vector<Layer> layers, Geometry geometry, OptimizerOptions options = {});
  Optimizer(const Optimizer&) = delete;  // two optimizers would share their momentum
  Optimizer& operator=(const Optimizer&) = delete;
  Optimizer(Optimizer&&) = default;
  Optimizer& operator=(Optimizer&&) = default;

  /// Moves all layers that have a gradient; the others are skipped and reported once. Gradients stay as they are.
  /// Throws InputError, with nothing changed, on a non-finite gradient (unless skipped by option; NonFiniteGradient),
  /// on a parameter whose shape, dtype or device is not what it was, and on a gradient unlike its parameter. Should
  /// anything throw later, inside a norm, a radius rule or an observer, the optimizer refuses further steps until
  /// load_state().
  ///
  /// Where all layers are moved by the kernels of a GPU, nothing here waits for it: gradients are judged on the device,
  /// a step with a bad one moves nothing there, and the next call of wait() or step() is the one that throws. In a CUDA
  /// graph of the caller's nobody is told, the gradients of other layers are not judged, and runs of the graph are not
  /// counted. With several ranks each step waits for the verdict of all of them.
  void step();

  /// Waits until the last step's gradients are known to be finite; throws NonFiniteGradient otherwise, see step().
  void wait();

  /// With several ranks: the next `backward_passes` are all of this step's, and in the last one gradients leave for
  /// their owners while it goes on. Without this call they leave in step(); zero_grad() takes it back.
  void begin_gradients(int64_t backward_passes);

  /// With several ranks: gives owners their gradients now, and not in step().
  void reduce_gradients();

  /// Whether this rank moves the layer with this index in layers().
  bool owns(std::size_t layer) const { return shards_->owns(layer); }

  void zero_grad();  // drops the gradients of all layers

  /// Which rule each group of layers follows, for people.
  std::string routing_report() const;

  /// The radius (AdamW: learning rate) each matrix moved by in its last step, schedule included. Synchronises
  /// with the device.
  std::vector<LayerRadius> effective_radii() const;

  /// A factor on all radii beside the schedule, for schedulers that live outside. Throws unless finite and >= 0.
  void set_radius_multiplier(double multiplier);
  double radius_multiplier() const { return radius_multipliers_.all; }

  /// A further factor on the radii of the layers with this Layer::group. Throws unless finite and >= 0.
  void set_group_radius_multiplier(int64_t group, double multiplier);

  const Momentum& momentum() const { return momentum_; }  // the options', or the geometry's own
  /// Another beta for the layers of a group, from the next step on; see Momentum::with_beta(). AdamW keeps its own.
  void set_group_beta(int64_t group, double beta);

  int64_t steps_taken() const { return step_; }
  int64_t steps_skipped() const { return skipped_; }
  const std::vector<Layer>& layers() const { return layers_; }
  const OptimizerOptions& options() const { return options_; }

  void add_observer(std::shared_ptr<StepObserver> observer);

  /// Bytes of momentum and moments that this rank keeps.
  int64_t state_bytes() const;

  /// A copy of everything the optimizer remembers, and its inverse. load_state() throws InputError, with nothing
  /// changed, when the state is newer than this library or does not fit the layers.
  OptimizerState state() const;
  void load_state(const OptimizerState& state);

 private:
  struct Expected {
    std::vector<int64_t> sizes;
    at::ScalarType dtype;
    at::Device device;
  };

  void add_layer_batches(const std::vector<std::size_t>& assignment);
  // False when a gradient is not finite and the step is to be left out.
  bool accepts_gradients();
  bool belongs_to_another_rank(const std::string& entry) const;
  void refuse_step(const std::string& layer);
  void say_path();
  void check_layers() const;
  void report_missing_gradients();
  std::optional<std::size_t> first_non_finite_layer() const;  // of this rank's
  void warn(const std::string& sentence) const;

  std::vector<Layer> layers_;
  Geometry geometry_;
  OptimizerOptions options_;
  Momentum momentum_;
  std::vector<Expected> expected_;  // per layer, as it was at construction
  std::optional<Shards> shards_;
  std::vector<std::string> matrices_;  // of all ranks, as effective_radii() calls them
  std::vector<LayerBatch> batches_;
  FusedBatches fused_;
  AdamW adamw_;
  std::vector<std::shared_ptr<StepObserver>> observers_;
  std::set<std::string> reported_;  // layers whose missing gradient was reported
  RadiusMultipliers radius_multipliers_;
  int64_t step_ = 0;
  int64_t skipped_ = 0;
  bool halfway_ = false;  // a step began and did not end
  bool path_said_ = false;
  bool reduced_ = false;  // owners have the gradients of the next step
};

}  // namespace gluon
