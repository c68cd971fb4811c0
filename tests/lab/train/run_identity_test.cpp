// What the table of config fields says about --resume, field by field.

#include <map>
#include <set>

#include "lab/train/config_fields.h"
#include "tests/expect_error.h"
#include "tests/lab/train/small_config.h"

namespace gluon::lab {
namespace {

// Another value of each field that a language model on the CPU can have.
// clang-format off
const std::map<std::string, std::string> kOtherValues{
    {"model", "nanogpt-124m"}, {"layers", "2"}, {"width", "64"}, {"heads", "1"}, {"seq", "16"},
    {"vocabulary", "300"}, {"qk-norm", "0"}, {"data", ""}, {"vocab", ""}, {"val-data", ""}, {"val-tokens", "64"}, {"batch", "8"}, {"accumulate", "2"}, {"parts", "2"},
    {"preset", "unscion"}, {"radius", "hidden=0.1"}, {"lr", "0.5"}, {"weight-decay", "0.5"},
    {"decay", "cautious(0.5)"}, {"normalize", "normuon(0.9)"},
    {"momentum", "ema(0.5)"}, {"schedule", "constant"}, {"orthogonalizer", "svd"}, {"clip", "2"},
    {"label-smoothing", "0.1"}, {"steps", "7"}, {"seed", "3"}, {"precision", "float32"}, {"cuda-graph", "0"},
    {"eval-every", "3"}, {"save-every", "3"}, {"on-nan", "skip"}, {"nan-limit", "3"}, {"smoothness-every", "2"}, {"smoothness-start", "5"}, {"smoothness-mode", "consecutive"},
    {"smoothness-geometry", "unscion"}, {"smoothness-dual", "exact"}};
// clang-format on
// Images, a data set that the batch divides, the whole process, a GPU, a model without QK norm.
const std::set<std::string> kUntested{"train-images",  "test-images", "full-batch",
                                      "deterministic", "device",      "qk-clip"};

TEST(RunIdentity, FieldsOfTheIdentityCannotChangeOnResumeAndOthersCan) {
  const Checkpoint checkpoint = make_trainer(small_config("muon")).checkpoint();
  for (const ConfigField& field : config_fields()) {
    if (kUntested.contains(field.name)) continue;
    ASSERT_TRUE(kOtherValues.contains(field.name)) << field.name;
    SCOPED_TRACE(field.name);
    TrainConfig config = small_config("muon");
    set_value(config, field, kOtherValues.at(field.name), "test");
    Trainer trainer = make_trainer(config);
    if (*field.identity == '\0') {
      EXPECT_NO_THROW(trainer.resume(checkpoint));
    } else {
      EXPECT_INPUT_ERROR(trainer.resume(checkpoint), "the checkpoint belongs to another run: its ");
      // The field's own part differs; an earlier one may differ, too.
      EXPECT_NE(checkpoint.text.at(field.identity), trainer.checkpoint().text.at(field.identity));
    }
  }
}

TEST(RunIdentity, DifferencesAreThoseOfWhatTheRunUses) {
  const Checkpoint checkpoint = make_trainer(small_config()).checkpoint();
  const std::string rule = "'hidden scaled(sqrt(n/m),spectral) ";
  TrainConfig radii = small_config(), momentum = small_config();
  radii.radius = "hidden=0.123456";  // a wider column
  EXPECT_INPUT_ERROR(make_trainer(radii).resume(checkpoint), "its geometry is " + rule + "0.018 ");
  EXPECT_INPUT_ERROR(make_trainer(radii).resume(checkpoint), "this run has " + rule + "0.123456 ");
  momentum.momentum = "ema(0.5)";
  EXPECT_INPUT_ERROR(make_trainer(momentum).resume(checkpoint), "its momentum is 'ema(0.9)', this run has 'ema(0.5)'");
}

TEST(RunIdentity, StepsBelongToARunWhoseRadiiFollowFromThem) {
  TrainConfig law = small_config("sphere"), number = small_config("sphere");
  number.radius = "hidden=0.05";
  const Checkpoint by_law = make_trainer(law).checkpoint(), by_number = make_trainer(number).checkpoint();
  EXPECT_NO_THROW(make_trainer(law).resume(by_law));
  const std::string steps = std::to_string(law.steps);
  law.steps = number.steps = 99;
  EXPECT_INPUT_ERROR(make_trainer(law).resume(by_law),
                     "resume: --steps must stay " + steps + ", from which the radii of the run follow, got 99");
  EXPECT_NO_THROW(make_trainer(number).resume(by_number));
  EXPECT_INPUT_ERROR(make_trainer(number).resume(by_law), "its geometry is");
  EXPECT_INPUT_ERROR(make_trainer(law).resume(by_number), "its geometry is");
}

TEST(RunIdentity, ADefaultThatIsWrittenOutIsTheSame) {
  TrainConfig standard = small_config();
  standard.heads = 0;
  const Checkpoint checkpoint = make_trainer(standard).checkpoint();
  standard.heads = 4;
  standard.label_smoothing = 0;
  EXPECT_NO_THROW(make_trainer(standard).resume(checkpoint));
}

TEST(RunIdentity, TheFirstDifferenceIsNamed) {
  const RunIdentity saved{{"geometry", "hidden  spectral  0.1\nembedding  1\n"}, {"seed", "1"}};
  EXPECT_NO_THROW(check_same_run(saved, saved));
  EXPECT_NO_THROW(check_same_run({{"geometry", "hidden spectral 0.1\nembedding   1\n"}}, saved));
  EXPECT_INPUT_ERROR(check_same_run({{"geometry", "hidden spectral 0.1\nembedding 2\n"}}, saved),
                     "its geometry is 'embedding 1', this run has 'embedding 2'");
  EXPECT_INPUT_ERROR(check_same_run({{"geometry", "hidden spectral 0.1\n"}}, saved),
                     "its geometry is 'embedding 1', this run has ''");
  EXPECT_INPUT_ERROR(check_same_run({{"seed", "2"}}, saved), "its seed is '1', this run has '2'");
  EXPECT_INPUT_ERROR(check_same_run({{"batch", "4 x 1"}}, saved), "the checkpoint does not name its batch");
}

}  // namespace
}  // namespace gluon::lab
