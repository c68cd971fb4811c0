// Thirty steps of every model with every preset, loss by loss against tests/baselines/loss_curves.txt, which a second
// implementation computed in float64 (loss_curves.py beside it). Weights and data are hashes of names and indices,
// written down in both places, so that nothing random and no file of data takes part.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <fstream>
#include <set>
#include <sstream>

#include "lab/models/cifar_cnn.h"
#include "lab/models/nanogpt.h"
#include "lab/train/trainer.h"

namespace gluon::lab {
namespace {

constexpr int64_t kSteps = 30;
constexpr double kTolerance = 1e-4;
constexpr int64_t kExamples = 250;
constexpr int64_t kFirstValidation = 1000;  // examples from here on never train

const NanoGptOptions kNanoGpt{.vocabulary = 64, .context = 32, .layers = 2, .width = 32, .heads = 2};
const CifarCnnOptions kCnn{.widths = {4, 8, 8}};

struct Curve {
  std::string model, preset, radius;
  int64_t batches = 0;         // per step; 0: the whole set
  std::vector<double> losses;  // before each step, then the validation loss
};

// What GoogleTest shows when one fails.
void PrintTo(const Curve& curve, std::ostream* out) {
  *out << curve.model << ' ' << curve.preset << ' ' << curve.radius;
}

std::vector<Curve> read_curves() {
  std::ifstream file(GLUON_BASELINES "/loss_curves.txt");
  std::vector<Curve> curves;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream fields(line);
    Curve curve;
    fields >> curve.model >> curve.preset >> curve.radius >> curve.batches;
    for (double loss = 0; fields >> loss;) curve.losses.push_back(loss);
    curves.push_back(curve);
  }
  return curves;
}

// splitmix64 of an index; every stream has its own start, FNV-1a of its name.
uint64_t bits(std::string_view stream, int64_t index) {
  uint64_t start = 0xcbf29ce484222325;
  for (const char byte : stream) start = (start ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  uint64_t z = start + (static_cast<uint64_t>(index) + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// In [-1, 1), with 24 bits: exact in float32.
double uniform(std::string_view stream, int64_t index) {
  return static_cast<double>(bits(stream, index) >> 40) / (1 << 23) - 1;
}

// Words of four letters, the words at random.
Batch language_examples(int64_t first, int64_t count) {
  const int64_t context = kNanoGpt.context;
  const at::Tensor text = at::empty({count, context + 1}, at::kLong);
  auto entries = text.accessor<int64_t, 2>();
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t t = 0; t <= context; ++t) {
      const int64_t place = (first + i) * context + t;
      const auto word = static_cast<int64_t>(bits("words", place / 4) % 16);
      entries[i][t] = static_cast<int64_t>(bits("letters", 4 * word + place % 4) % kNanoGpt.vocabulary);
    }
  }
  return {text.narrow(1, 0, context).contiguous(), text.narrow(1, 1, context).contiguous()};
}

// A coarse pattern for each class, and noise.
Batch image_examples(int64_t first, int64_t count) {
  constexpr int64_t kSide = 25;
  const at::Tensor images = at::empty({count, 3, kSide, kSide}, at::kFloat);
  const at::Tensor labels = at::arange(first, first + count, at::kLong).remainder(kCnn.classes);
  auto pixels = images.accessor<float, 4>();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t label = (first + i) % kCnn.classes;
    for (int64_t k = 0; k < 3 * kSide * kSide; ++k) {
      const int64_t c = k / (kSide * kSide), y = k / kSide % kSide, x = k % kSide;
      const double pattern = uniform("pattern", label * 48 + c * 16 + y / 8 * 4 + x / 8);
      const double noise = uniform("noise", (first + i) * 3 * kSide * kSide + k);
      pixels[i][c][y][x] = static_cast<float>(0.75 * pattern + 0.75 * noise);
    }
  }
  return {images, labels};
}

class Formula : public Dataset {
 public:
  using MakeBatch = Batch(int64_t first, int64_t count);

  Formula(MakeBatch* make, int64_t examples) : make_(make), examples_(examples) {}

  Batch train_batch(int64_t index, int64_t size) const override { return make_(index * size % examples_, size); }
  std::vector<Batch> validation(int64_t size) const override { return {make_(kFirstValidation, size)}; }
  int64_t train_examples() const override { return examples_; }
  int64_t tokens_per_example() const override { return 1; }
  int64_t classes() const override { return 10; }
  std::string describe() const override { return "values of a formula"; }

 private:
  MakeBatch* make_;
  int64_t examples_;
};

void fill(Model& model) {
  const at::NoGradGuard no_grad;
  for (const auto& entry : model.named_parameters()) {
    const std::string& name = entry.key();
    if (name.find(".norm") != std::string::npos && name.ends_with("weight")) continue;  // frozen at 1
    at::Tensor parameter = entry.value();
    const int64_t fan_in = parameter.dim() > 1 ? parameter.numel() / parameter.size(0) : 100;
    const double bound = name == "head.weight" ? 1 : 1 / std::sqrt(static_cast<double>(fan_in));
    const at::Tensor values = at::empty({parameter.numel()}, at::kFloat);
    for (int64_t i = 0; i < parameter.numel(); ++i) {
      values.data_ptr<float>()[i] = static_cast<float>(uniform(name, i) * bound);
    }
    parameter.copy_(values.view(parameter.sizes()));
  }
}

Trainer make_trainer(const Curve& curve, int64_t smoothness_every = 0) {
  const bool language = curve.model == "nanogpt";
  TrainConfig config;
  config.model = language ? "nanogpt-tiny" : "cifar-cnn";
  config.preset = curve.preset;
  config.radius = curve.radius;
  config.steps = kSteps;
  config.smoothness_every = smoothness_every;
  config.batch = language ? 4 : 5;
  config.full_batch = curve.batches == 0;
  config.accumulate = std::max<int64_t>(curve.batches, 1);
  const int64_t examples = config.full_batch ? 2 * config.batch : kExamples;
  std::shared_ptr<Model> model;
  if (language) {
    model = std::make_shared<NanoGpt>(kNanoGpt);
  } else {
    model = std::make_shared<CifarCnn>(kCnn);
  }
  fill(*model);
  return {config, model, std::make_shared<Formula>(language ? language_examples : image_examples, examples)};
}

class LossCurve : public ::testing::TestWithParam<Curve> {
 protected:
  // Matrices this small are slower on several threads, and much slower where the cores are busy.
  static void SetUpTestSuite() { at::set_num_threads(1); }
};

TEST_P(LossCurve, AgreesWithTheOtherImplementation) {
  const Curve& curve = GetParam();
  ASSERT_EQ(curve.losses.size(), kSteps + 1);
  Trainer trainer = make_trainer(curve);
  double largest = 0;
  for (int64_t step = 0; step < kSteps; ++step) {
    const double loss = trainer.step();
    const double expected = curve.losses[static_cast<std::size_t>(step)];
    largest = std::max(largest, std::abs(loss - expected));
    ASSERT_NEAR(loss, expected, kTolerance) << "at step " << step;
  }
  // After training: the running statistics of the norms count too.
  EXPECT_NEAR(trainer.evaluate(), curve.losses.back(), kTolerance);
  RecordProperty("largest_difference", std::to_string(largest));
}

// Also where a look ahead passes through batch norms, and under AdamW, whose norms are unscion's.
TEST_P(LossCurve, RecordingSmoothnessChangesNoBit) {
  Trainer plain = make_trainer(GetParam());
  Trainer recorded = make_trainer(GetParam(), 3);
  for (int64_t step = 0; step < 8; ++step) ASSERT_EQ(plain.step(), recorded.step()) << "at step " << step;
  EXPECT_EQ(plain.evaluate(), recorded.evaluate());
  const Checkpoint without = plain.checkpoint();
  for (const auto& [name, tensor] : recorded.checkpoint().model) {
    EXPECT_TRUE(tensor.equal(without.model.at(name))) << name;
  }
  EXPECT_EQ(recorded.recorder()->bytes_held(), 0);
}

INSTANTIATE_TEST_SUITE_P(Baselines, LossCurve, ::testing::ValuesIn(read_curves()),
                         [](const auto& info) { return info.param.model + "_" + info.param.preset; });

TEST(LossCurves, CoverEveryModelAndPresetAndGoDown) {
  std::set<std::pair<std::string, std::string>> covered;
  for (const Curve& curve : read_curves()) {
    covered.emplace(curve.model, curve.preset);
    // A curve that hardly moves would agree with anything.
    ASSERT_EQ(curve.losses.size(), kSteps + 1);
    EXPECT_LT(curve.losses[kSteps - 1], curve.losses[0] - 0.3) << curve.model << ' ' << curve.preset;
  }
  for (const char* model : {"nanogpt", "cnn"}) {
    for (const char* preset : {"unscion", "scion", "sphere", "muon", "normuon", "sign_descent", "normalized_descent",
                               "sgd", "deterministic_gluon", "adamw"}) {
      EXPECT_EQ(covered.count({model, preset}), 1) << model << ' ' << preset;
    }
  }
}

}  // namespace
}  // namespace gluon::lab
