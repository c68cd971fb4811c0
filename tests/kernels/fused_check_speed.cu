// The kernels' time at the shapes of GPT-124M and its 32 x 1024 tokens, beside the time a copy of the same bytes takes.
// Median of 20 runs, each after the L2 cache was filled with something else.

#include <algorithm>
#include <numeric>

#include "gluon/kernels/cuda/momentum.h"
#include "gluon/kernels/cuda/sign_update.h"
#include "gluon/kernels/cuda/update.h"
#include "lab/models/cuda/cross_entropy.h"
#include "lab/models/cuda/embedding_gradient.h"
#include "lab/models/cuda/mlp_product.h"
#include "lab/models/cuda/qk_rotary.h"
#include "lab/models/cuda/rms_norm.h"
#include "tests/kernels/fused_check.h"

namespace gluon::fused_check {
namespace {

constexpr double kCopyBound = 4.2e12;  // bytes a second
constexpr int64_t kTokens = 32 * 1024;

template <typename T>
__global__ void fill_kernel(T* data, size_t count, unsigned seed) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x) {
    unsigned h = static_cast<unsigned>(i) * 2654435761u + seed;
    h = (h ^ (h >> 16)) * 0x85ebca6bu;
    h = (h ^ (h >> 13)) * 0xc2b2ae35u;
    const float v = static_cast<float>(h ^ (h >> 16)) * 0x1p-31F - 1;
    if constexpr (std::is_same_v<T, float>) data[i] = v;
    if constexpr (std::is_same_v<T, __half>) data[i] = __float2half_rn(v);
    if constexpr (std::is_same_v<T, bf16>) data[i] = __float2bfloat16_rn(v);
  }
}

// Random entries in [-1, 1).
template <typename T>
struct Random : Array<T> {
  explicit Random(size_t count) : Array<T>(count) {
    fill_kernel<<<1024, 256>>>(this->data(), count, static_cast<unsigned>(count));
    require(cudaGetLastError(), "fill");
  }
};

__global__ void read_kernel(const uint4* data, size_t count, unsigned* sink) {
  unsigned sum = 0;
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x) {
    sum ^= data[i].x ^ data[i].y ^ data[i].z ^ data[i].w;
  }
  if (sum == 12345) *sink = sum;
}

class Clock {
 public:
  Clock() {
    require(cudaEventCreate(&start_), "event");
    require(cudaEventCreate(&stop_), "event");
  }
  void row(const char* kernel, const std::string& shape, double bytes,
           const std::function<cudaError_t()>& body) {
    std::vector<float> times;
    for (int i = 0; i < 23; ++i) {
      read_kernel<<<1024, 256>>>(reinterpret_cast<const uint4*>(other_.data()), other_.size() / 4,
                                 sink_.data());
      require(cudaEventRecord(start_), "event");
      require(body(), kernel);
      require(cudaEventRecord(stop_), "event");
      require(cudaEventSynchronize(stop_), kernel);
      float ms = 0;
      require(cudaEventElapsedTime(&ms, start_, stop_), "event");
      if (i >= 3) times.push_back(ms);
    }
    std::sort(times.begin(), times.end());
    const double seconds = (times[9] + times[10]) / 2 * 1e-3;
    std::printf("| %-34s | %-22s | %8.1f | %6.0f | %5.1f %% |\n", kernel, shape.c_str(), seconds * 1e6,
                bytes / seconds * 1e-9, 100 * bytes / seconds / kCopyBound);
    std::fflush(stdout);
  }

 private:
  cudaEvent_t start_ = nullptr, stop_ = nullptr;
  Array<unsigned> other_{64 << 20}, sink_{1};
};

struct Layers {
  Random<float> g, m, x;
  Random<__half> d;
  Array<const float*> gradients;
  Array<float*> parameters;
  Array<float> weights{std::vector<float>{0.95F, 0.05F}}, radii;
  Array<double> gradient_squares, momentum_squares;
  Array<cuda::ScalePair> scales;
  Array<cuda::Verdict> verdict{std::vector<cuda::Verdict>(1)};
  int64_t count, size;

  Layers(int64_t count, int64_t rows, int64_t columns)
      : g(count * rows * columns),
        m(g.size()),
        x(g.size()),
        d(g.size()),
        gradients(count),
        parameters(count),
        radii(std::vector<float>(count, 0.01F)),
        gradient_squares(count * cuda::gradient_partials(rows * columns)),
        momentum_squares(count * cuda::momentum_partials(rows * columns)),
        scales(count),
        count(count),
        size(rows * columns) {
    std::vector<const float*> a;
    std::vector<float*> b;
    for (int64_t i = 0; i < count; ++i) {
      a.push_back(g.data() + i * size), b.push_back(x.data() + i * size);
    }
    gradients.set(a), parameters.set(b);
  }
  cuda::MomentumStep step(bool nesterov) const {
    return {.count = count,
            .size = size,
            .nesterov = nesterov,
            .gradients = gradients.data(),
            .momentum = m.data(),
            .weights = weights.data(),
            .gradient_squares = gradient_squares.data(),
            .momentum_squares = momentum_squares.data(),
            .scales = scales.data(),
            .output = d.data()};
  }
};

void measure_layers(Clock& clock, int64_t count, int64_t rows, int64_t columns) {
  Layers l(count, rows, columns);
  const std::string shape =
      std::to_string(count) + " x " + std::to_string(rows) + " x " + std::to_string(columns);
  const double n = static_cast<double>(l.g.size());
  for (const bool nesterov : {false, true}) {
    const cuda::MomentumStep step = l.step(nesterov);
    const auto measure = [&] { return cuda::measure_gradients(&step, 1, l.verdict.data(), nullptr); };
    const auto judge = [&] { return cuda::judge(&step, 1, l.verdict.data(), nullptr, nullptr); };
    const auto accumulate = [&] { return cuda::accumulate_momentum(&step, 1, nullptr); };
    const auto all = [&] {
      for (const cudaError_t error : {measure(), judge()}) {
        if (error != cudaSuccess) return error;
      }
      return accumulate();
    };
    if (!nesterov) clock.row("measured gradients", shape, 4 * n, measure);
    clock.row(nesterov ? "momentum, fp16 input, nesterov" : "momentum, fp16 input, ema", shape, 14 * n,
              accumulate);
    clock.row("  both and the verdict", shape, 18 * n, all);
  }
  const cuda::ParameterUpdate update{.count = count,
                                     .size = l.size,
                                     .parameters = l.parameters.data(),
                                     .directions = l.d.data(),
                                     .radii = l.radii.data()};
  clock.row("update, fp16 direction", shape, 10 * n,
            [&] { return cuda::update_parameters(update, nullptr); });
}

void measure_embedding(Clock& clock) {
  Layers l(1, 50304, 768);
  const double n = static_cast<double>(l.size);
  const cuda::SignUpdate update{.count = 1,
                                .size = l.size,
                                .gradients = l.gradients.data(),
                                .momentum = l.m.data(),
                                .weights = l.weights.data(),
                                .parameters = l.parameters.data(),
                                .radii = l.radii.data()};
  clock.row("sign update", "50304 x 768", 20 * n, [&] { return cuda::update_by_sign(update, nullptr); });
}

void measure_training(Clock& clock) {
  const int64_t width = 768, size = kTokens * width;
  const double n = static_cast<double>(size);
  Random<bf16> x(size), y(size), out(size), d(size);
  Random<float> inverse(kTokens * 12);
  clock.row("rms_norm forward", "32768 x 768", 4 * n, [&] {
    return lab::cuda::rms_norm_forward(x.data(), out.data(), inverse.data(), kTokens, width, nullptr);
  });
  clock.row("rms_norm backward", "32768 x 768", 6 * n, [&] {
    return lab::cuda::rms_norm_backward(y.data(), inverse.data(), d.data(), nullptr, out.data(), kTokens,
                                        width, nullptr);
  });
  clock.row("  with the residual's gradient", "32768 x 768", 8 * n, [&] {
    return lab::cuda::rms_norm_backward(y.data(), inverse.data(), d.data(), out.data(), out.data(), kTokens,
                                        width, nullptr);
  });
  Random<float> angles(1024 * 64);
  Random<bf16> packed(3 * size), dpacked(3 * size);
  const lab::cuda::RotaryShape shape{kTokens, 1024, 6, 128, angles.data(), angles.data()};
  clock.row("qk_rotary forward", "32768 x 2 x 6 x 128", 8 * n, [&] {
    return lab::cuda::qk_rotary_forward(shape, {packed.data(), 3 * width}, {packed.data() + width, 3 * width},
                                        {x.data(), width}, {y.data(), width}, inverse.data(), nullptr);
  });
  lab::cuda::RotaryGradients gradients{{x.data(), width},   {y.data(), width}, inverse.data(),
                                       {out.data(), width}, {d.data(), width}, {}};
  clock.row("qk_rotary backward", "32768 x 2 x 6 x 128", 12 * n, [&] {
    return lab::cuda::qk_rotary_backward(shape, gradients, {dpacked.data(), 3 * width},
                                         {dpacked.data() + width, 3 * width}, {}, nullptr);
  });
  gradients.dvalue = {packed.data(), width};
  clock.row("  with the values", "32768 x 3 x 6 x 128", 16 * n, [&] {
    return lab::cuda::qk_rotary_backward(shape, gradients, {dpacked.data(), 3 * width},
                                         {dpacked.data() + width, 3 * width},
                                         {dpacked.data() + 2 * width, 3 * width}, nullptr);
  });
  Random<bf16> dup(4 * size), act(4 * size);
  Random<bf16> weight(4 * width * width);
  const lab::cuda::MlpShape wide{kTokens, 4 * static_cast<int>(width), static_cast<int>(width)};
  clock.row("mlp up", "32768 x 768 x 3072", 10 * n,
            [&] { return lab::cuda::mlp_up(wide, x.data(), weight.data(), act.data(), nullptr); });
  clock.row("mlp down backward", "32768 x 768 x 3072", 18 * n, [&] {
    return lab::cuda::mlp_down_backward(wide, x.data(), weight.data(), act.data(), dup.data(), nullptr);
  });
}

// Tokens as frequent as a text's: the k-th as 1 / k, shuffled.
void measure_embedding_gradient(Clock& clock) {
  const int vocabulary = 50304, width = 768;
  std::mt19937_64 random(1);
  std::vector<int> tokens(kTokens);
  for (int& token : tokens) {
    token = static_cast<int>(std::pow(vocabulary, std::uniform_real_distribution<double>()(random))) - 1;
  }
  std::sort(tokens.begin(), tokens.end());
  std::vector<int64_t> order(kTokens);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  Array<int> sorted(tokens);
  Array<int64_t> places(order);
  Random<bf16> gradient(kTokens * width);
  Random<float> head(static_cast<size_t>(vocabulary) * width), scale(1), out(head.size()),
      sums(lab::cuda::embedding_chunks(kTokens) * width);
  Array<int> firsts(vocabulary + 1);
  clock.row("embedding_gradient", "32768 to 50304 x 768", 8.0 * head.size() + 2.0 * gradient.size(), [&] {
    return lab::cuda::embedding_gradient(
        {static_cast<int>(kTokens), vocabulary, width, sorted.data(), places.data(), gradient.data(),
         head.data(), scale.data(), out.data(), firsts.data(), sums.data()},
        nullptr);
  });
}

void measure_entropy(Clock& clock, int64_t vocabulary) {
  const std::string shape = "32768 x " + std::to_string(vocabulary);
  const int64_t size = kTokens * vocabulary;
  Random<bf16> logits(size);
  Array<int64_t> labels(std::vector<int64_t>(kTokens, 11));
  Array<float> losses(kTokens);
  lab::cuda::CrossEntropy a{.rows = kTokens,
                            .vocabulary = vocabulary,
                            .logits = logits.data(),
                            .labels = labels.data(),
                            .losses = losses.data(),
                            .scale = 1};
  clock.row("cross_entropy, loss and gradient", shape, 4.0 * size,
            [&] { return lab::cuda::cross_entropy(a, nullptr); });
  a.gradient = false;
  clock.row("cross_entropy, loss", shape, 2.0 * size, [&] { return lab::cuda::cross_entropy(a, nullptr); });
}

}  // namespace

void measure_speed() {
  Clock clock;
  std::printf("| %-34s | %-22s | %8s | %6s | %7s |\n", "kernel", "shape", "us", "GB/s", "4.2 TB/s");
  std::printf("|%s|%s|%s|%s|%s|\n", std::string(36, '-').c_str(), std::string(24, '-').c_str(),
              "---------:", "-------:", "--------:");
  {
    Random<float> from(512 << 20), to(512 << 20);
    clock.row("cudaMemcpyAsync", "2 GiB", 8.0 * from.size(), [&] {
      return cudaMemcpyAsync(to.data(), from.data(), from.size() * 4, cudaMemcpyDeviceToDevice, nullptr);
    });
  }
  measure_layers(clock, 48, 768, 768);
  measure_layers(clock, 24, 3072, 768);
  measure_layers(clock, 48, 2048, 2048);
  measure_layers(clock, 24, 2048, 8192);
  measure_embedding(clock);
  measure_training(clock);
  measure_embedding_gradient(clock);
  for (const int64_t vocabulary : {50304, 50257}) measure_entropy(clock, vocabulary);
}

}  // namespace gluon::fused_check
