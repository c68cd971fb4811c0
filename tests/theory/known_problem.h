// KnownProblem: a problem with known constants (gluon/testing/problems.h) and one norm for all layers. Descent runs
// gluon::Optimizer on it with the radii of a guarantee.

#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <cmath>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "gluon/radius/radius.h"
#include "gluon/testing/problems.h"
#include "gluon/theory/guarantee.h"
#include "gluon/update/optimizer.h"

namespace gluon {

inline double dual_of(const Norm& norm, const at::Tensor& g) { return norm.dual_norm(g.unsqueeze(0)).item<double>(); }

struct KnownProblem {
  KnownProblem(const std::string& norm, const std::string& kind, const std::vector<MatrixShape>& shapes)
      : problem(make_problem(kind, shapes)), norm_name(norm) {
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      norms.push_back(make_norm(norm, shapes[i]));
      const Smoothness smoothness = problem.objectives[i]->smoothness(*norms[i]);
      constants.layers.push_back({.l0 = smoothness.l0, .l1 = smoothness.l1});
    }
    constants.initial_gap = problem.value(problem.layers()) - problem.infimum();
  }

  // |grad_i f|* of every layer.
  std::vector<double> duals(const std::vector<Layer>& layers) const {
    std::vector<double> result;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      result.push_back(dual_of(*norms[i], problem.objectives[i]->gradient(layers[i].parameter)));
    }
    return result;
  }

  Problem problem;
  std::string norm_name;
  std::vector<NormPtr> norms;
  theory::Constants constants;
};

// Makes a stochastic gradient from `gradient`.
using Noise = std::function<at::Tensor(const at::Tensor& gradient, const Norm&, at::Generator&)>;

// A random matrix with the given dual norm and mean zero.
inline at::Tensor random_with_dual(const at::Tensor& like, const Norm& norm, double dual, at::Generator& generator) {
  const at::Tensor random = at::randn(like.sizes(), generator, at::kDouble);
  return random * (dual / dual_of(norm, random));
}

// Runs the public optimizer as the guarantee requires.
class Descent {
 public:
  Descent(const KnownProblem& known, const theory::Guarantee& guarantee, Noise noise = nullptr, uint64_t seed = 0)
      : known_(known),
        layers_(known.problem.layers()),
        optimizer_(make_optimizer(guarantee)),
        noise_(std::move(noise)),
        generator_(at::make_generator<at::CPUGeneratorImpl>(seed)) {
    evaluate();
  }

  void step() {
    optimizer_.step();
    evaluate();
  }

  const std::vector<Layer>& layers() const { return layers_; }
  double value() const { return value_; }
  double gap() const { return value_ - known_.problem.infimum(); }
  const std::vector<double>& duals() const { return duals_; }              // |grad_i f|*
  const std::vector<double>& noisy_duals() const { return noisy_duals_; }  // |g_i|*, the step's input

 private:
  Optimizer make_optimizer(const theory::Guarantee& guarantee) const {
    std::vector<Rule> rules;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      rules.push_back(
          {.pattern = layers_[i].name, .norm = known_.norm_name, .radius = make_radius(guarantee.radii[i])});
    }
    return Optimizer(layers_, Geometry(std::move(rules)), {.momentum = make_momentum(guarantee.momentum)});
  }

  void evaluate() {
    known_.problem.write_gradients(layers_);
    value_ = known_.problem.value(layers_);
    duals_ = known_.duals(layers_);
    noisy_duals_ = duals_;
    if (!noise_) return;
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      at::Tensor& gradient = layers_[i].parameter.mutable_grad();
      gradient = noise_(gradient, *known_.norms[i], generator_);
      noisy_duals_[i] = dual_of(*known_.norms[i], gradient);
    }
  }

  const KnownProblem& known_;
  std::vector<Layer> layers_;
  Optimizer optimizer_;
  Noise noise_;
  at::Generator generator_;
  double value_ = 0;
  std::vector<double> duals_, noisy_duals_;
};

// Runs that differ in the seeds of their noise.
struct Runs {
  Runs(const KnownProblem& known, const theory::Guarantee& guarantee, const Noise& noise = nullptr, uint64_t seeds = 1)
      : weights(guarantee.weights) {
    for (uint64_t seed = 0; seed < seeds; ++seed) runs.emplace_back(known, guarantee, noise, seed);
  }

  void step() {
    for (Descent& run : runs) run.step();
  }

  // The mean of the promise's sum_i w_i |grad_i f|*, or of f - inf f where the promise is about that.
  double mean() const {
    double sum = 0;
    for (const Descent& run : runs) {
      sum += weights.empty() ? run.gap() : std::inner_product(weights.begin(), weights.end(), run.duals().begin(), 0.0);
    }
    return sum / static_cast<double>(runs.size());
  }

  // The number of iterates X_0, X_1, ... until mean() is at most `precision`; `most` + 1 when `most` are not enough.
  double iterations_until(double precision, double most) {
    for (double count = 1; count <= most; ++count) {
      if (mean() <= precision) return count;
      step();
    }
    return most + 1;
  }

  std::vector<Descent> runs;
  std::vector<double> weights;
};

}  // namespace gluon
