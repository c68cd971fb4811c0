// The kernels of an optimizer step and of a training step, captured as one CUDA graph: replays give the bits of plain
// launches.

#include <memory>

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

constexpr int64_t kCount = 3, kRows = 96, kColumns = 128, kSize = kRows * kColumns;
constexpr int64_t kTokens = 40, kHeads = 2, kDimension = 64, kWidth = kHeads * kDimension, kVocabulary = 2048;

struct Sequence {
  std::mt19937_64 random{5};
  std::vector<float> first_m = random_values<float>(kCount * kSize, 1, random),
                     first_x = random_values<float>(kCount * kSize, 1, random);
  std::vector<bf16> first_s = random_values<bf16>(kTokens * kWidth, 1, random),
                    first_logits = random_values<bf16>(kTokens * kVocabulary, 1, random);
  Array<float> g{random_values<float>(kCount * kSize, 1, random)}, m{kCount * kSize}, x{kCount * kSize},
      weights{std::vector<float>{0.9F, 0.1F}}, radii{std::vector<float>{0.1F, 0.2F, 0.3F}},
      angles{random_values<float>(kTokens * kDimension / 2, 1, random)}, inverse{kTokens * 2 * kHeads},
      losses{kTokens}, norms{kTokens}, head{random_values<float>(kVocabulary * kWidth, 1, random)},
      embedding{kVocabulary * kWidth},
      sums{static_cast<size_t>(lab::cuda::embedding_chunks(kTokens) * kWidth)};
  Array<__half> d{kCount * kSize};
  Array<bf16> s{kTokens * kWidth}, wide{random_values<bf16>(kWidth * kWidth, 1, random)},
      out{kTokens * kWidth}, q{kTokens * kWidth}, k{kTokens * kWidth}, act{kTokens * kWidth},
      logits{kTokens * kVocabulary}, dact{kTokens * kWidth}, dq{kTokens * kWidth}, dk{kTokens * kWidth},
      ds{kTokens * kWidth};
  Array<int64_t> labels{std::vector<int64_t>(kTokens, 17)}, order{std::vector<int64_t>(kTokens, 3)};
  Array<int> sorted{std::vector<int>(kTokens, 17)}, firsts{kVocabulary + 1};
  Array<double> gradient_squares{static_cast<size_t>(kCount * cuda::gradient_partials(kSize))};
  Array<double> momentum_squares{static_cast<size_t>(kCount * cuda::momentum_partials(kSize))};
  Array<cuda::ScalePair> scales{kCount};
  Array<cuda::Verdict> verdict{std::vector<cuda::Verdict>(1)};
  Array<const float*> gradient_table{kCount};
  Array<float*> parameter_table{kCount};

  Sequence() {
    std::vector<const float*> a;
    std::vector<float*> b;
    for (int64_t i = 0; i < kCount; ++i) {
      a.push_back(g.data() + i * kSize), b.push_back(x.data() + i * kSize);
    }
    gradient_table.set(a), parameter_table.set(b);
  }

  void restore() {
    m.set(first_m), x.set(first_x), s.set(first_s), logits.set(first_logits);
    d.poison(), out.poison(), q.poison(), k.poison(), act.poison(), losses.poison();
    norms.poison(), inverse.poison(), dact.poison(), dq.poison(), dk.poison(), ds.poison(),
        embedding.poison();
  }

  void launch(cudaStream_t stream) {
    const cuda::MomentumStep step{.count = kCount,
                                  .size = kSize,
                                  .gradients = gradient_table.data(),
                                  .momentum = m.data(),
                                  .weights = weights.data(),
                                  .gradient_squares = gradient_squares.data(),
                                  .momentum_squares = momentum_squares.data(),
                                  .scales = scales.data(),
                                  .output = d.data(),
                                  .verdict = verdict.data()};
    require(cuda::measure_momentum(step, stream), "measure momentum");
    require(cuda::measure_gradients(&step, 1, verdict.data(), stream), "measure gradients");
    require(cuda::judge(&step, 1, verdict.data(), nullptr, stream), "judge");
    require(cuda::accumulate_momentum(&step, 1, stream), "accumulate");
    require(cuda::update_parameters({.count = kCount,
                                     .size = kSize,
                                     .parameters = parameter_table.data(),
                                     .directions = d.data(),
                                     .radii = radii.data()},
                                    stream),
            "update");
    require(cuda::update_by_sign({.count = kCount,
                                  .size = kSize,
                                  .gradients = gradient_table.data(),
                                  .momentum = m.data(),
                                  .weights = weights.data(),
                                  .parameters = parameter_table.data(),
                                  .radii = radii.data()},
                                 stream),
            "sign");
    require(lab::cuda::rms_norm_forward(s.data(), out.data(), norms.data(), kTokens, kWidth, stream),
            "rms_norm");
    const lab::cuda::RotaryShape shape{kTokens, kTokens, kHeads, kDimension, angles.data(), angles.data()};
    require(lab::cuda::qk_rotary_forward(shape, {out.data(), kWidth}, {s.data(), kWidth}, {q.data(), kWidth},
                                         {k.data(), kWidth}, inverse.data(), stream),
            "rotary");
    require(lab::cuda::mlp_up({kTokens, kWidth, kWidth}, q.data(), wide.data(), act.data(), stream), "mlp");
    require(lab::cuda::cross_entropy({.rows = kTokens,
                                      .vocabulary = kVocabulary,
                                      .logits = logits.data(),
                                      .labels = labels.data(),
                                      .losses = losses.data(),
                                      .scale = 1.0F / kTokens},
                                     stream),
            "cross_entropy");
    require(lab::cuda::mlp_down_backward({kTokens, kWidth, kWidth}, q.data(), wide.data(), act.data(),
                                         dact.data(), stream),
            "mlp backward");
    require(lab::cuda::qk_rotary_backward(shape,
                                          {{q.data(), kWidth},
                                           {k.data(), kWidth},
                                           inverse.data(),
                                           {dact.data(), kWidth},
                                           {out.data(), kWidth},
                                           {}},
                                          {dq.data(), kWidth}, {dk.data(), kWidth}, {}, stream),
            "rotary backward");
    require(lab::cuda::rms_norm_backward(out.data(), norms.data(), dq.data(), dk.data(), ds.data(), kTokens,
                                         kWidth, stream),
            "rms_norm backward");
    require(lab::cuda::embedding_gradient(
                {kTokens, kVocabulary, kWidth, sorted.data(), order.data(), ds.data(), head.data(),
                 radii.data(), embedding.data(), firsts.data(), sums.data()},
                stream),
            "embedding");
  }

  std::vector<unsigned char> bits() {
    std::vector<unsigned char> all;
    const auto add = [&](const auto& array) {
      const auto values = array.get();
      const auto* bytes = reinterpret_cast<const unsigned char*>(values.data());
      all.insert(all.end(), bytes, bytes + values.size() * sizeof(values[0]));
    };
    add(m), add(x), add(d), add(s), add(out), add(q), add(k), add(act), add(logits), add(losses);
    add(norms), add(inverse), add(dact), add(dq), add(dk), add(ds), add(embedding);
    return all;
  }
};

}  // namespace

void check_graph() {
  const auto sequence = std::make_unique<Sequence>();
  cudaStream_t stream = nullptr;
  require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  sequence->restore();
  require(cudaDeviceSynchronize(), "restore");
  sequence->launch(stream);
  const std::vector<unsigned char> plain = sequence->bits();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "begin of the capture");
  sequence->launch(stream);
  require(cudaStreamEndCapture(stream, &graph), "end of the capture");
  require(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
  for (int i = 0; i < 2; ++i) {
    sequence->restore();
    require(cudaDeviceSynchronize(), "restore");
    require(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
    expect(plain == sequence->bits(), "graph: replay " + std::to_string(i) + " differs from plain launches");
  }
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

}  // namespace gluon::fused_check
