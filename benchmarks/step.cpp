#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/cuda.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string_view>

#include "benchmarks/benchmarks.h"
#include "gluon/core/check.h"
#include "gluon/fit/median.h"
#include "gluon/geometry/presets.h"
#include "gluon/kernels/kernels.h"
#include "gluon/lmo/orthogonalize/coefficients.h"
#include "gluon/lmo/orthogonalize/orthogonalizer.h"
#include "gluon/lmo/orthogonalize/quintic_iteration.h"
#include "gluon/update/optimizer.h"

namespace gluon::benchmarks {
namespace {

constexpr double kRadius = 0.02;
constexpr double kBeta = 0.95;
constexpr int kReferenceSteps = 5;
constexpr std::string_view kEmbedding = "embedding";

struct Shape {
  int64_t rows;
  int64_t cols;
  bool operator==(const Shape&) const = default;
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

// Squared error of a direction, an entry of the polar factor or a sign being 1 in the mean.
double squared_error(const at::Tensor& direction, const at::Tensor& gradient, bool sign) {
  const at::Tensor wide = gradient.to(at::kDouble);
  const at::Tensor exact = sign ? wide.sign() : make_orthogonalizer("svd")->polar(wide.unsqueeze(0))[0];
  const auto size = static_cast<double>(sign ? wide.numel() : std::min(wide.size(0), wide.size(1)));
  return (direction.to(at::kDouble) - exact).square().sum().item<double>() / size;
}

struct Errors {
  double ours = 0;
  double reference = 0;
};

// One step from zero parameters for the first matrix of each shape: root mean square errors.
Errors direction_errors(const std::vector<Shape>& shapes, const at::Device& device, const Geometry& geometry,
                        const OptimizerOptions& options, Role role) {
  std::vector<Shape> different;
  for (const Shape& shape : shapes) {
    if (std::find(different.begin(), different.end(), shape) == different.end()) different.push_back(shape);
  }
  const std::vector<Layer> layers = make_random_layers(different, device, role);
  for (const Layer& layer : layers) at::Tensor(layer.parameter).zero_();
  Optimizer(layers, geometry, options).step();
  const bool sign = role == Role::kEmbedding;
  Errors sum;
  for (const Layer& layer : layers) {
    const at::Tensor& gradient = layer.parameter.grad();
    sum.ours += squared_error(layer.parameter / -kRadius, gradient, sign);
    sum.reference += squared_error(sign ? gradient.sign() : Reference::orthogonalize(gradient), gradient, sign);
  }
  const auto count = static_cast<double>(layers.size());
  return {std::sqrt(sum.ours / count), std::sqrt(sum.reference / count)};
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
      std::dynamic_pointer_cast<const QuinticIteration>(make_orthogonalizer(options.orthogonalizer));
  GLUON_CHECK(orthogonalizer != nullptr, "bench step: the orthogonalizer must be an iteration, got '",
              options.orthogonalizer, "'");

  const at::NoGradGuard no_grad;
  at::manual_seed(0);
  const bool sign = options.model == kEmbedding;
  const Role role = sign ? Role::kEmbedding : Role::kHidden;
  const Geometry geometry = sign ? Geometry({{.pattern = "*", .norm = "max_entry", .radius = kRadius}})
                                 : presets::muon({.hidden = kRadius, .scale = presets::MuonScale::kNone});
  const OptimizerOptions our_options{.momentum = sign ? Momentum::ema(kBeta) : Momentum::nesterov(kBeta),
                                     .orthogonalizer = options.orthogonalizer};
  const Errors errors = direction_errors(shapes, device, geometry, our_options, role);
  const std::vector<Layer> layers = make_random_layers(shapes, device, role);
  Optimizer ours(layers, geometry, our_options);
  Reference reference(layers, sign);
  for (int warmup = 0; warmup < 2; ++warmup) ours.step();
  reference.step();
  std::vector<double> our_times, reference_times;
  for (int64_t repeat = 0; repeat < options.repeats; ++repeat) {
    our_times.push_back(seconds_of(device, [&] { ours.step(); }));
    reference_times.push_back(seconds_of(device, [&] { reference.step(); }));
  }

  StepResult result;
  double our_flops = 0, their_flops = 0;
  for (const Shape& shape : shapes) {
    result.parameters += shape.rows * shape.cols;
    if (sign) continue;
    our_flops += quintic_flops(orthogonalizer->plan(shape.rows, shape.cols), shape);
    their_flops += reference_flops(shape);
  }
  const double our_time = median(our_times);
  const double their_time = median(reference_times);
  result.matrices = static_cast<int64_t>(shapes.size());
  result.threads = at::get_num_threads();
  result.ours = {sign ? "sign" : options.orthogonalizer, our_time * 1e3, our_flops / our_time * 1e-9, errors.ours};
  result.reference = {sign ? "sign, one by one" : "newton_schulz:5, one by one", their_time * 1e3,
                      their_flops / their_time * 1e-9, errors.reference};
  result.ratio = their_time / our_time;
  result.bound_milliseconds = 1e3 * (sign ? 20.0 * static_cast<double>(result.parameters) / bytes_per_second(device)
                                          : our_flops / product_flops_per_second(device));
  return result;
}

}  // namespace gluon::benchmarks
