#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/cuda.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "benchmarks/benchmarks.h"
#include "benchmarks/exactness.h"
#include "gluon/core/check.h"
#include "gluon/fit/median.h"
#include "gluon/geometry/presets.h"
#include "gluon/kernels/kernels.h"
#include "gluon/lmo/orthogonalize/coefficients.h"
#include "gluon/lmo/orthogonalize/orthogonalizer.h"
#include "gluon/lmo/orthogonalize/polar_iteration.h"
#include "gluon/update/optimizer.h"

namespace gluon::benchmarks {
namespace {

constexpr double kRadius = 0.02;
constexpr double kBeta = 0.95;
constexpr int kReferenceSteps = 5;
constexpr std::string_view kEmbedding = "embedding";

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
    GLUON_CHECK(options.layers >= 0 && options.layers <= all, "bench step: layers must be in 1..", all, " for ",
                options.model, " (0 is all), got ", options.layers);
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
  if (options.model == kEmbedding) {
    (void)limited(1);
    return {{50304, 768}};
  }
  throw InputError(
      join("bench step: unknown model '", options.model, "'; allowed are gpt124m, gpt1b3, cnn, embedding"));
}

std::vector<Layer> make_random_layers(const std::vector<Shape>& shapes, const at::Device& device, Role role) {
  std::vector<Layer> layers;
  for (const auto& [rows, cols] : shapes) {
    at::Tensor parameter = at::randn({rows, cols}, device).mul_(0.02);
    parameter.mutable_grad() = at::randn({rows, cols}, device);
    layers.push_back({join("layer", layers.size(), ".weight"), parameter, role});
  }
  return layers;
}

// What the public Muon does in one step, in float32; or sign descent, layer by layer.
class Reference {
 public:
  Reference(const std::vector<Layer>& layers, bool sign) : layers_(layers), sign_(sign) {
    for (const Layer& layer : layers_) buffers_.push_back(at::zeros_like(layer.parameter));
  }

  void step() {
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const at::Tensor& gradient = layers_[i].parameter.grad();
      buffers_[i].lerp_(gradient, 1 - kBeta);
      layers_[i].parameter.add_(sign_ ? buffers_[i].sign() : orthogonalize(gradient.lerp(buffers_[i], kBeta)),
                                -kRadius);
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
  bool sign_;
  std::vector<at::Tensor> buffers_;
};

// Flops of one matrix with the triangles that are computed; see polar_iteration.h.
double polar_flops(const PolarPlan& plan, const Shape& shape) {
  const auto k = static_cast<double>(std::min(shape.rows, shape.cols));
  const auto l = static_cast<double>(std::max(shape.rows, shape.cols));
  double flops = k * k * l;  // the first R
  bool fresh = true;
  for (std::size_t step = 0; step < plan.steps.size(); ++step) {
    const bool last = step + 1 == plan.steps.size();
    flops += k * k * k * (static_cast<double>(plan.steps[step].squares.size()) + (fresh ? 0 : 1));  // and Q Z
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
  if (device.is_cuda()) {
    if (const std::optional<double> seconds = kernels::device_seconds(run)) return *seconds;
  }
  wait();
  lab::Stopwatch stopwatch;
  run();
  wait();
  return stopwatch.lap();
}

double least_seconds_of_three(const at::Device& device, const std::function<void()>& run) {
  return std::min({seconds_of(device, run), seconds_of(device, run), seconds_of(device, run)});
}

// Flop rate of a large square product in the precision of the iteration: what the machine can do.
double product_flops_per_second(const at::Device& device) {
  const int64_t side = device.is_cuda() ? 8192 : 2048;
  const at::Tensor a = at::randn({side, side}, device).to(device.is_cuda() ? at::kHalf : at::kFloat);
  return 2 * std::pow(side, 3) / least_seconds_of_three(device, [&] { at::mm(a, a); });
}

double bytes_per_second(const at::Device& device) {
  const at::Tensor from = at::randn({int64_t{1} << 28}, device);
  const at::Tensor to = at::empty_like(from);
  return 2.0 * static_cast<double>(from.nbytes()) / least_seconds_of_three(device, [&] { to.copy_(from); });
}

// How a step moves zero parameters, in units of the radius, upwards.
Directions moves_of_a_step(const at::Device& device, const Geometry& geometry, const OptimizerOptions& options,
                           Role role) {
  return [=](const std::vector<at::Tensor>& gradients) {
    std::vector<Layer> layers;
    for (const at::Tensor& gradient : gradients) {
      at::Tensor parameter = at::zeros_like(gradient, device);
      parameter.mutable_grad() = gradient.to(device);
      layers.push_back({join("layer", layers.size(), ".weight"), parameter, role});
    }
    Optimizer(layers, geometry, options).step();
    std::vector<at::Tensor> moves;
    for (const Layer& layer : layers) moves.push_back(layer.parameter / -kRadius);
    return moves;
  };
}

Directions each(const std::function<at::Tensor(const at::Tensor&)>& direction) {
  return [=](const std::vector<at::Tensor>& gradients) {
    std::vector<at::Tensor> directions;
    for (const at::Tensor& gradient : gradients) directions.push_back(direction(gradient));
    return directions;
  };
}

// Of ours, of the reference, and of the five bfloat16 steps that compiled systems take.
std::vector<StepErrors> measure_errors(const StepOptions& options, const std::vector<Shape>& shapes,
                                       const Directions& ours) {
  if (options.model == kEmbedding) {
    const std::vector<TestMatrix> signs = gaussian_signs(shapes);
    const Directions reference = each([](const at::Tensor& g) { return g.sign(); });
    return {{"ours", {.gaussian = error_of(ours, signs)}}, {"reference", {.gaussian = error_of(reference, signs)}}};
  }
  const std::vector<TestMatrix> gaussian = gaussian_matrices(shapes), one_over_i = one_over_i_matrices(shapes);
  const bool has_recorded = options.momenta != kMomenta || std::filesystem::exists(options.momenta);
  std::vector<TestMatrix> recorded;
  if (has_recorded) recorded = recorded_matrices(options.momenta);
  const OrthogonalizerPtr narrow = make_orthogonalizer("bfloat16:polar_express:5");
  const Directions in_bfloat16 = each([narrow](const at::Tensor& g) { return narrow->polar(g.unsqueeze(0))[0]; });
  std::vector<StepErrors> errors;
  for (const auto& [name, directions] :
       {std::pair(join("ours (", options.orthogonalizer, ")"), ours),
        std::pair(std::string("reference (newton_schulz:5)"), each(Reference::orthogonalize)),
        std::pair(narrow->name(), in_bfloat16)}) {
    errors.push_back({name, {error_of(directions, gaussian), {}, error_of(directions, one_over_i)}});
    if (has_recorded) errors.back().errors.recorded = error_of(directions, recorded);
  }
  return errors;
}

Geometry geometry_of(bool sign) {
  if (sign) return Geometry({{.pattern = "*", .norm = "max_entry", .radius = kRadius}});
  return presets::muon({.hidden = kRadius, .scale = presets::MuonScale::kNone});
}

bool asks_for_stages(const StepOptions& options) {
  return !options.normalize.empty() || !options.decay.empty() || !options.sphere.empty();
}

Geometry with_stages(const StepOptions& options, bool sign) {
  Rule rule{.norm = sign ? "max_entry" : "spectral", .radius = kRadius};
  if (!options.normalize.empty()) rule.normalize = Normalize(options.normalize);
  if (!options.decay.empty()) rule.decay = Decay(options.decay);
  if (!options.sphere.empty()) rule.sphere = make_sphere(options.sphere);
  return Geometry({rule});
}

std::string stages_text(const StepOptions& options) {
  std::string text = "ours with";
  if (!options.normalize.empty()) text += " " + options.normalize;
  if (!options.decay.empty()) text += " decay " + options.decay;
  if (!options.sphere.empty()) text += " sphere " + options.sphere;
  return text;
}

}  // namespace

StepResult run_step(const StepOptions& options) {
  GLUON_CHECK(options.device == "cpu" || options.device == "cuda", "bench step: device must be cpu or cuda, got '",
              options.device, "'");
  GLUON_CHECK(options.device == "cpu" || torch::cuda::is_available(), "bench step: no CUDA device is available");
  const at::Device device(options.device);
  GLUON_CHECK(options.repeats >= 1, "bench step: repeats must be >= 1, got ", options.repeats);
  const std::vector<Shape> shapes = model_shapes(options);
  const auto orthogonalizer =
      std::dynamic_pointer_cast<const PolarIteration>(make_orthogonalizer(options.orthogonalizer));
  GLUON_CHECK(orthogonalizer != nullptr, "bench step: the orthogonalizer must be an iteration, got '",
              options.orthogonalizer, "'");

  const at::NoGradGuard no_grad;
  at::manual_seed(0);
  const bool sign = options.model == kEmbedding;
  const Role role = sign ? Role::kEmbedding : Role::kHidden;
  const Geometry geometry = geometry_of(sign);
  const std::optional<Geometry> staged =
      asks_for_stages(options) ? std::optional(with_stages(options, sign)) : std::nullopt;
  const OptimizerOptions our_options{.momentum = sign ? Momentum::ema(kBeta) : Momentum::nesterov(kBeta),
                                     .orthogonalizer = options.orthogonalizer};
  StepResult result;
  result.errors = measure_errors(options, shapes, moves_of_a_step(device, geometry, our_options, role));
  const std::vector<Layer> layers = make_random_layers(shapes, device, role);
  Optimizer ours(layers, geometry, our_options);
  Reference reference(layers, sign);
  std::optional<Optimizer> third;
  if (staged) third.emplace(make_random_layers(shapes, device, role), *staged, our_options);
  for (int warmup = 0; warmup < 2; ++warmup) {
    ours.step();
    if (third) third->step();
  }
  reference.step();
  std::vector<double> our_times, staged_times, reference_times;
  for (int64_t repeat = 0; repeat < options.repeats; ++repeat) {
    our_times.push_back(seconds_of(device, [&] { ours.step(); }));
    if (third) staged_times.push_back(seconds_of(device, [&] { third->step(); }));
    reference_times.push_back(seconds_of(device, [&] { reference.step(); }));
  }

  double our_flops = 0, their_flops = 0;
  for (const Shape& shape : shapes) {
    result.parameters += shape.rows * shape.cols;
    if (sign) continue;
    our_flops += polar_flops(orthogonalizer->plan(shape.rows, shape.cols), shape);
    their_flops += reference_flops(shape);
  }
  const double our_time = median(our_times);
  const double their_time = median(reference_times);
  result.matrices = static_cast<int64_t>(shapes.size());
  result.threads = at::get_num_threads();
  result.ours = {sign ? "sign" : options.orthogonalizer, our_time * 1e3, our_flops / our_time * 1e-9};
  result.reference = {sign ? "sign, one by one" : "newton_schulz:5, one by one", their_time * 1e3,
                      their_flops / their_time * 1e-9};
  if (third) result.with_stages = {stages_text(options), median(staged_times) * 1e3};
  result.ratio = their_time / our_time;
  result.bound_milliseconds = 1e3 * (sign ? 20.0 * static_cast<double>(result.parameters) / bytes_per_second(device)
                                          : our_flops / product_flops_per_second(device));
  return result;
}

}  // namespace gluon::benchmarks
