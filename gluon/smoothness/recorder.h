// Recorder: measures trajectory smoothness while an optimizer runs, without touching the run.
//
//   step k        before it moves     X_k and g_k are copied               (k >= `start`, k a multiple of `every`)
//   step k + 1    before it moves     the sample is made of them and of X_{k+1}, g_{k+1}; the copies are dropped
//
// It is a StepObserver, so `consecutive` and `full` need nothing but Optimizer::add_observer(). In `same_batch` g_k
// is the gradient of the NEXT batch at the old point, one more evaluation, which only the training loop can make:
//
//   if (recorder->needs_reference(k)) { /* gradients of step k + 1's batch, at X_k */ recorder->take_reference(); }
//   optimizer.step();                                                            // with step k's own gradients again
//
// The dual of a spectral norm is the sum of the singular values. RecorderOptions::dual says how it is computed, and
// each layer's dual_method how it was:
//
//   exact              the SVD; slow on a GPU
//   an orthogonalizer  <g, polar(g)>; on GPUs since Ampere in float16, except with float32:NAME
//   auto               exact on the CPU, polar_express:8 on a GPU: within 1e-4 where singular values fall like 1/i
//                      or slower, up to 2e-3 too small where they fall faster (docs/tuning.md)
//
// The geometry says in which norm each layer is measured. It need not be the optimizer's: an AdamW run is measured
// in unscion's norms, the paper's ablation in Euclidean ones. A pair that a restart interrupts gives no sample.

#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "gluon/core/batch_step.h"
#include "gluon/geometry/geometry.h"
#include "gluon/smoothness/sample.h"

namespace gluon {

struct RecorderOptions {
  int64_t every = 50;
  int64_t start = 0;                              // no pair of steps begins before this one
  Estimator estimator = Estimator::kConsecutive;  // needs no help from the training loop; see Estimator for its price
  std::string dual = "auto";                      // of spectral norms: see above
  // Whether the layer with this index is measured; empty: all are. With several ranks Optimizer::owns(), since only
  // owners have the gradients of all ranks.
  std::function<bool(std::size_t)> measures{};

  /// Throws InputError naming the option, its value and what is allowed.
  void validate() const;
};

/// `geometry` with unscion's rules for the layers it leaves to AdamW, which has no norm.
Geometry measuring_geometry(const Geometry& geometry);

class Collective;

/// Returns the samples of all ranks, on every rank. `mine` lists the same layers in the same order on each.
Trajectory gather_samples(Collective& collective, const Trajectory& mine);

class Recorder : public StepObserver {
 public:
  /// Throws InputError on a layer that `geometry` has no norm for.
  Recorder(std::span<const Layer> layers, const Geometry& geometry, RecorderOptions options = {});
  ~Recorder() override;

  /// Whether take_reference() must be called before step k = `step`; only in `same_batch`.
  bool needs_reference(int64_t step) const;

  /// Copies the gradients the layers hold now.
  void take_reference();

  /// Throws InputError when a reference was needed and not taken.
  void before_step(int64_t step) override;

  /// True for the steps that begin a pair; its end needs nothing but before_step().
  bool watches(int64_t step) const override;
  void after_step(const BatchStep& batch) override;

  /// Drops the pair of steps in progress: the gradient that would complete it will not come.
  void abandon_pair();

  /// Whether there are samples to take.
  bool has_samples() const;

  /// All layers and how they are measured, without samples.
  Trajectory measured() const;

  /// The samples made since the last call.
  Trajectory take_samples();

  /// Bytes of copies held now: 0 between sampled pairs.
  int64_t bytes_held() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace gluon
