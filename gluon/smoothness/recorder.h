// Recorder: measures trajectory smoothness while an optimizer runs, without touching the run.
//
//   step k        before it moves     X_k and g_k are copied               (every `every` steps: k = 0, every, ...)
//   step k + 1    before it moves     the sample is made of them and of X_{k+1}, g_{k+1}; the copies are dropped
//
// It is a StepObserver, so `consecutive` and `full` need nothing but Optimizer::add_observer(). In `same_batch` g_k
// is the gradient of the NEXT batch at the old point, one evaluation more, which only the training loop can make:
//
//   if (recorder->needs_reference(k)) { /* gradients of step k + 1's batch, at X_k */ recorder->take_reference(); }
//   optimizer.step();                                                            // with step k's own gradients again
//
// The dual of a spectral norm is the sum of the singular values. RecorderOptions::dual says where it comes from,
// and each layer's dual_method what it was:
//
//   exact              the SVD; slow on a GPU
//   an orthogonalizer  <g, polar(g)>; polar_express on Hopper GPUs in float16, float32:polar_express not
//   auto               exact on the CPU, polar_express:8 on a GPU: within 1e-4 where singular values fall like 1/i
//                      or slower, up to 2e-3 too small where they fall faster (docs/tuning.md)
//
// The geometry says in which norm each layer is measured. It need not be the optimizer's: an AdamW run is measured
// in unscion's norms, the paper's ablation in Euclidean ones. A pair that a restart cuts is lost.

#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "gluon/core/batch_step.h"
#include "gluon/geometry/geometry.h"
#include "gluon/smoothness/sample.h"

namespace gluon {

struct RecorderOptions {
  int64_t every = 50;
  Estimator estimator =
      Estimator::kConsecutive;  // needs no help from the training loop; see Estimator for its price
  std::string dual = "auto";    // of spectral norms: see above
  // With several ranks: Optimizer::owns(), since gradients are whole only at their owners.
  std::function<bool(std::size_t)> measures;  // whether the layer with this index is; all of them when empty

  /// Throws InputError naming the option, its value and what is allowed.
  void validate() const;
};

/// `geometry` with unscion's rules for the layers it leaves to AdamW, which has no norm.
Geometry measuring_geometry(const Geometry& geometry);

class Recorder : public StepObserver {
 public:
  /// Throws InputError on a layer that `geometry` has no norm for.
  Recorder(std::span<const Layer> layers, const Geometry& geometry, RecorderOptions options = {});

  /// Whether take_reference() must be called before step k = `step`; only in `same_batch`.
  bool needs_reference(int64_t step) const;

  /// Copies the gradients the layers hold now.
  void take_reference();

  /// Throws InputError when a reference was needed and not taken.
  void before_step(int64_t step) override;

  /// The steps that begin a pair; its end needs nothing but before_step().
  bool watches(int64_t step) const override { return step % options_.every == 0; }
  void after_step(const BatchStep& batch) override;

  /// Whether there are samples to take.
  bool has_samples() const { return has_samples_; }

  /// All layers and how they are measured, without samples.
  Trajectory measured() const;

  /// The samples made since the last call.
  Trajectory take_samples();

  /// Bytes of copies held now: 0 between sampled pairs.
  int64_t bytes_held() const;

  const RecorderOptions& options() const { return options_; }

 private:
  // Gradients of a group, (c, m, n), zero for a layer without one.
  struct Gradients {
    at::Tensor stack;
    std::vector<char> present;
  };

  // Matrices of one shape in one norm, dtype and device. Stacks are undefined between pairs.
  struct Group {
    NormPtr norm = nullptr;
    bool exact = true;  // whether the dual comes from the norm itself, not from its LMO
    std::vector<Block> blocks{};
    std::vector<std::size_t> places{};  // of the blocks in samples_.layers
    Gradients reference{};              // taken before the step
    at::Tensor parameters{};            // X_k
    Gradients gradients{};              // g_k
    at::Tensor momentum{};              // m_k
    at::Tensor radius{};                // (c); NaN where the step did not say
    std::vector<char> seen{};           // whether the step said its momentum

    at::Tensor stack() const;  // an empty one
    Gradients gather_gradients() const;
    at::Tensor dual_norm(const at::Tensor& g) const;
  };

  // What a pair says about a group's matrices, still on their device.
  struct Measured {
    at::Tensor values;          // (6 c): gradient_change, displacement, gradient, momentum, alignment, radius
    std::vector<char> present;  // whether a matrix had both gradients
  };

  void begin_pair();
  void finish_pair(int64_t step);
  static Measured measure(Group& group);
  void append_samples(const Group& group, const Measured& measured, int64_t step);

  RecorderOptions options_;
  std::vector<Group> groups_;
  std::map<std::string, std::pair<std::size_t, std::size_t>> slots_;  // block name -> group, index
  Trajectory samples_;
  bool open_ = false;  // X_k and g_k are held
  bool has_samples_ = false;
};

}  // namespace gluon
