#include "benchmarks/step.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/cuda.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <set>

#include "benchmarks/median.h"
#include "gluon/check.h"
#include "gluon/lmo/orthogonalize/coefficients.h"
#include "gluon/lmo/orthogonalize/quintic_iteration.h"
#include "gluon/lmo/orthogonalize/svd.h"
#include "gluon/update/optimizer.h"
#include "gluon/update/presets.h"

namespace gluon::benchmarks {
namespace {

constexpr double kRadius = 0.02;
constexpr double kBeta = 0.95;
constexpr int kReferenceSteps = 5;

struct Shape {
  int64_t rows;
  int64_t cols;
};

// The hidden matrices of `blocks` blocks: q, k, v, projection and the two of the MLP.
std::vector<Shape> gpt_shapes(int64_t blocks, int64_t width) {
  std::vector<Shape> shapes;
  for (int64_t block = 0; block < blocks; ++block) {
    shapes.insert(shapes.end(), 4, {width, width});
    shapes.push_back({4 * width, width});
    shapes.push_back({width, 4 * width});
  }
  return shapes;
}

std::vector<Shape> model_shapes(const StepOptions& options) {
  const auto limited = [&](int64_t all) {
    GLUON_CHECK(options.layers >= 0 && options.layers <= all, "bench step: layers must be in 1..", all,
                " for ", options.model, " (0 is all), got ", options.layers);
    return options.layers == 0 ? all : options.layers;
  };
  if (options.model == "gpt124m") return gpt_shapes(limited(12), 768);
  if (options.model == "gpt1b3") return gpt_shapes(limited(24), 2048);
  if (options.model == "cnn") {
    // 3x3 convolutions of the CIFAR-10 CNN as (out, in * 9); the whitening layer has 24 channels.
    std::vector<Shape> shapes{{64, 24 * 9}, {64, 64 * 9}, {256, 64 * 9}};
    shapes.insert(shapes.end(), 3, {256, 256 * 9});
    shapes.resize(static_cast<std::size_t>(limited(6)));
    return shapes;
  }
  throw InputError(join("bench step: unknown model '", options.model, "'; allowed are gpt124m, gpt1b3, cnn"));
}

std::vector<Layer> make_random_layers(const std::vector<Shape>& shapes, const at::Device& device) {
  std::vector<Layer> layers;
  for (const auto& [rows, cols] : shapes) {
    at::Tensor parameter = at::randn({rows, cols}, device).mul_(0.02);
    parameter.mutable_grad() = at::randn({rows, cols}, device);
    layers.push_back({join("layer", layers.size(), ".weight"), parameter, Role::kHidden});
  }
  return layers;
}

// What the public Muon does in one step, in float32.
class ReferenceMuon {
 public:
  explicit ReferenceMuon(const std::vector<Layer>& layers) : layers_(layers) {
    for (const Layer& layer : layers_) buffers_.push_back(at::zeros_like(layer.parameter));
  }

  void step() {
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const at::Tensor& gradient = layers_[i].parameter.grad();
      buffers_[i].lerp_(gradient, 1 - kBeta);
      layers_[i].parameter.add_(orthogonalize(gradient.lerp(buffers_[i], kBeta)), -kRadius);
    }
  }

  static at::Tensor orthogonalize(const at::Tensor& g) {
    const auto [a, b, c] = jordan_coefficients(1)[0];
    const bool tall = g.size(0) > g.size(1);
    at::Tensor x = (tall ? g.t() : g) / g.norm();
    for (int step = 0; step < kReferenceSteps; ++step) {
      const at::Tensor gram = at::mm(x, x.t());
      const at::Tensor update = b * gram + c * at::mm(gram, gram);
      x = a * x + at::mm(update, x);
    }
    return tall ? x.t() : x;
  }

 private:
  std::vector<Layer> layers_;
  std::vector<at::Tensor> buffers_;
};

// Keeps what the LMO was given and what it answered for the first matrix of each shape.
class DirectionSampler : public StepObserver {
 public:
  struct Sample {
    at::Tensor momentum;
    at::Tensor direction;
  };

  void after_step(const BatchStep& batch) override {
    const MatrixShape& shape = batch.blocks.front().shape;
    if (samples_.count({shape.rows, shape.cols}) > 0) return;
    samples_[{shape.rows, shape.cols}] = {batch.momentum[0].clone(), batch.direction[0].clone()};
  }

  const std::map<std::pair<int64_t, int64_t>, Sample>& samples() const { return samples_; }

 private:
  std::map<std::pair<int64_t, int64_t>, Sample> samples_;
};

// Flops of one matrix with the triangles that are computed; see quintic_iteration.h.
double quintic_flops(const QuinticPlan& plan, const Shape& shape) {
  const auto k = static_cast<double>(std::min(shape.rows, shape.cols));
  const auto l = static_cast<double>(std::max(shape.rows, shape.cols));
  double flops = k * k * l;  // the first R
  bool fresh = true;
  for (std::size_t step = 0; step < plan.coefficients.size(); ++step) {
    const bool last = step + 1 == plan.coefficients.size();
    flops += k * k * k * (fresh ? 1 : 2);  // R^2, and Q Z
    fresh = last || plan.restart[step];
    flops += fresh ? k * k * l * (last ? 2 : 3) : 2 * k * k * k;
  }
  return flops;
}

double reference_flops(const Shape& shape) {
  const auto k = static_cast<double>(std::min(shape.rows, shape.cols));
  const auto l = static_cast<double>(std::max(shape.rows, shape.cols));
  return kReferenceSteps * (4 * k * k * l + 2 * k * k * k);
}

double seconds_of(const at::Device& device, const std::function<void()>& run) {
  const auto wait = [&] {
    if (device.is_cuda()) torch::cuda::synchronize();
  };
  wait();
  const auto start = std::chrono::steady_clock::now();
  run();
  wait();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Flop rate of a large square product in the precision of the iteration, best of three: what the machine can do.
double product_flops_per_second(const at::Device& device) {
  const int64_t side = device.is_cuda() ? 8192 : 2048;
  const at::Tensor a = at::randn({side, side}, device).to(device.is_cuda() ? at::kHalf : at::kFloat);
  double best = 0;
  for (int i = 0; i < 3; ++i) {
    best = std::max(best, 2 * std::pow(side, 3) / seconds_of(device, [&] { at::mm(a, a); }));
  }
  return best;
}

double squared_error(const at::Tensor& polar, const at::Tensor& input) {
  const at::Tensor exact = make_orthogonalizer("svd")->polar(input.unsqueeze(0).to(at::kDouble))[0];
  const double rank = static_cast<double>(std::min(input.size(0), input.size(1)));
  return (polar.to(at::kDouble) - exact).square().sum().item<double>() / rank;
}

}  // namespace

StepResult run_step(const StepOptions& options) {
  GLUON_CHECK(options.device == "cpu" || options.device == "cuda",
              "bench step: device must be cpu or cuda, got '", options.device, "'");
  GLUON_CHECK(options.device == "cpu" || torch::cuda::is_available(),
              "bench step: no CUDA device is available");
  const at::Device device(options.device);
  GLUON_CHECK(options.repeats >= 1, "bench step: repeats must be >= 1, got ", options.repeats);
  const std::vector<Shape> shapes = model_shapes(options);
  const auto orthogonalizer =
      std::dynamic_pointer_cast<const QuinticIteration>(make_orthogonalizer(options.orthogonalizer));
  GLUON_CHECK(orthogonalizer != nullptr, "bench step: the orthogonalizer must be an iteration, got '",
              options.orthogonalizer, "'");

  const at::NoGradGuard no_grad;
  at::manual_seed(0);
  const std::vector<Layer> layers = make_random_layers(shapes, device);
  const Geometry geometry = presets::muon({.hidden = kRadius, .scale = presets::MuonScale::kNone});
  const OptimizerOptions our_options{.momentum = Momentum::nesterov(kBeta),
                                     .orthogonalizer = options.orthogonalizer};
  Optimizer ours(layers, geometry, our_options);
  ReferenceMuon reference(layers);

  // The error is taken from a step of its own: watching costs time.
  StepResult result;
  const auto sampler = std::make_shared<DirectionSampler>();
  Optimizer watched(layers, geometry, our_options);
  watched.add_observer(sampler);
  watched.step();
  ours.step();
  reference.step();
  std::vector<double> our_times;
  std::vector<double> reference_times;
  for (int64_t repeat = 0; repeat < options.repeats; ++repeat) {
    our_times.push_back(seconds_of(device, [&] { ours.step(); }));
    reference_times.push_back(seconds_of(device, [&] { reference.step(); }));
  }

  double our_flops = 0;
  double their_flops = 0;
  for (const Shape& shape : shapes) {
    our_flops += quintic_flops(orthogonalizer->plan(shape.rows, shape.cols), shape);
    their_flops += reference_flops(shape);
    result.parameters += shape.rows * shape.cols;
  }
  double our_error = 0;
  double their_error = 0;
  for (const auto& [shape, sample] : sampler->samples()) {
    our_error += squared_error(sample.direction.to(at::kFloat).neg(), sample.momentum);
    their_error += squared_error(ReferenceMuon::orthogonalize(sample.momentum), sample.momentum);
  }
  const auto count = static_cast<double>(sampler->samples().size());
  const double our_time = median(our_times);
  const double their_time = median(reference_times);
  result.matrices = static_cast<int64_t>(shapes.size());
  result.threads = at::get_num_threads();
  result.ours = {options.orthogonalizer, our_time * 1e3, our_flops / our_time * 1e-9,
                 std::sqrt(our_error / count)};
  result.reference = {"newton_schulz:5, one by one", their_time * 1e3, their_flops / their_time * 1e-9,
                      std::sqrt(their_error / count)};
  result.ratio = their_time / our_time;
  result.bound_milliseconds = our_flops / product_flops_per_second(device) * 1e3;
  return result;
}

}  // namespace gluon::benchmarks
