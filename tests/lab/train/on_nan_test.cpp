// Gradients with NaN or Inf under --on-nan skip and rollback.

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "gluon/core/atomic_file.h"
#include "lab/models/nanogpt.h"
#include "tests/expect_error.h"
#include "tests/lab/train/small_config.h"
#include "tests/temporary_folder.h"

namespace gluon::lab {
namespace {

// A model whose loss is NaN for the training batches that `poisoned` names.
class PoisonedGpt : public NanoGpt {
 public:
  using NanoGpt::NanoGpt;

  torch::Tensor loss(const Batch& batch, double label_smoothing) override {
    const torch::Tensor value = NanoGpt::loss(batch, label_smoothing);
    return is_training() && poisoned && poisoned(batch) ? value * std::nan("") : value;
  }

  std::function<bool(const Batch&)> poisoned;
};

// The same data without one training batch.
class WithoutBatch : public Dataset {
 public:
  WithoutBatch(std::shared_ptr<const Dataset> all, int64_t missing) : all_(std::move(all)), missing_(missing) {}
  Batch train_batch(int64_t index, int64_t size) const override {
    return all_->train_batch(index < missing_ ? index : index + 1, size);
  }
  std::vector<Batch> validation(int64_t size) const override { return all_->validation(size); }
  int64_t train_examples() const override { return all_->train_examples(); }
  int64_t tokens_per_example() const override { return all_->tokens_per_example(); }
  int64_t classes() const override { return all_->classes(); }
  std::string describe() const override { return all_->describe(); }

 private:
  std::shared_ptr<const Dataset> all_;
  int64_t missing_;
};

class OnNan : public ::testing::Test {
 protected:
  OnNan() {
    config_.steps = 12;
    config_.save_every = 5;
    config_.eval_every = 100;
    config_.smoothness_every = 2;
    const Experiment experiment = make_experiment(config_);
    data_ = experiment.dataset;
    options_ = dynamic_cast<const NanoGpt&>(*experiment.model).options();
  }

  /// A trainer whose losses are NaN on batch `index`, and on later ones with `onwards`, while `applies`.
  std::unique_ptr<Trainer> trainer(int64_t index, bool onwards = false, double multiplier = -1) {
    auto model = std::make_shared<PoisonedGpt>(options_, config_.seed);
    auto made = std::make_unique<Trainer>(config_, model, data_);
    model->poisoned = [this, index, onwards, multiplier, self = made.get()](const Batch& batch) {
      if (multiplier > 0 && self->optimizer().radius_multiplier() != multiplier) return false;
      for (int64_t i = index; i <= (onwards ? 20 : index); ++i) {
        if (batch.inputs.equal(data_->train_batch(i, config_.batch).inputs)) return true;
      }
      return false;
    };
    return made;
  }

  TrainSummary train(Trainer& trainer, const std::string& name) {
    const std::filesystem::path path = folder_.path() / name;
    return run(trainer, std::filesystem::exists(path) ? RunDirectory::reopen(path) : RunDirectory::create(path, ""));
  }

  Checkpoint saved(const std::string& name) const {
    return load_checkpoint(folder_.path() / name / "checkpoint").checkpoint;
  }

  /// One of the two checkpoints that a run keeps.
  Checkpoint read_at(const std::string& name, const std::string& file) const {
    const std::filesystem::path folder = folder_.path() / (name + " " + file);
    std::filesystem::create_directory(folder);
    std::filesystem::copy(folder_.path() / name / "checkpoint" / file, folder);
    return load_checkpoint(folder).checkpoint;
  }

  nlohmann::json facts(const std::string& name) const {
    return nlohmann::json::parse(read_text(folder_.path() / name / "facts.json", "test"));
  }

  std::string samples(const std::string& name) const {
    return read_text(folder_.path() / name / "smoothness.csv", "test");
  }

  static void expect_same(const Checkpoint& first, const Checkpoint& second) {
    EXPECT_EQ(first.step, second.step);
    for (const auto& [name, tensor] : first.model) EXPECT_TRUE(tensor.equal(second.model.at(name))) << name;
    for (const auto& [name, tensor] : first.optimizer.tensors) {
      EXPECT_TRUE(tensor.equal(second.optimizer.tensors.at(name))) << name;
    }
  }

  TrainConfig config_ = small_config();
  std::shared_ptr<const Dataset> data_;
  NanoGptOptions options_;
  const TemporaryFolder folder_;
};

TEST_F(OnNan, AnErrorByDefault) {
  const auto poisoned = trainer(3);
  EXPECT_INPUT_ERROR(train(*poisoned, "run"), "holds NaN or Inf at step 3; nothing was updated");
  EXPECT_EQ(poisoned->steps_taken(), 3);
}

TEST_F(OnNan, SkipTrainsAsWithoutTheBatch) {
  config_.on_nan = "skip";
  train(*trainer(3), "run");
  Trainer other(config_, std::make_shared<NanoGpt>(options_, config_.seed), std::make_shared<WithoutBatch>(data_, 3));
  train(other, "other");
  expect_same(saved("run"), saved("other"));
  EXPECT_EQ(facts("run")["skipped"], 1);
  EXPECT_EQ(facts("run")["rollbacks"], 0);
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "other/facts.json"));
}

TEST_F(OnNan, ASkippingRunResumesBitForBit) {
  config_.on_nan = "skip";
  train(*trainer(3), "whole");
  const auto resumed = trainer(3);
  resumed->resume(read_at("whole", "step-00000010.safetensors"));
  train(*resumed, "run");
  expect_same(saved("run"), saved("whole"));
  EXPECT_EQ(saved("run").text.at("skipped"), "1");
  EXPECT_EQ(facts("run")["skipped"], 1);
  EXPECT_NE(read_text(folder_.path() / "run/status.json", "test").find("finished"), std::string::npos);
}

TEST_F(OnNan, TooManyBatchesInARowAreAnError) {
  config_.on_nan = "skip";
  config_.nan_limit = 2;
  const auto poisoned = trainer(3, /*onwards=*/true);
  EXPECT_INPUT_ERROR(train(*poisoned, "run"), "after 2 batches left out in a row (--nan-limit)");
  EXPECT_EQ(poisoned->steps_taken(), 3);
}

TEST_F(OnNan, TheStatusSaysWhereAndWhy) {
  for (const int64_t first : {0, 3}) {
    const std::string name = "failed at " + std::to_string(first);
    EXPECT_INPUT_ERROR(train(*trainer(first), name), "holds NaN or Inf");
    const RunDirectory run = RunDirectory::open(folder_.path() / name);
    std::string note;
    const RunStatus status = read_run_status(run.path(), run.log(), {}, note);
    EXPECT_EQ(status_text(status), join("failed after step ", first, " of 12: ", status.error));
    EXPECT_NE(status.error.find("holds NaN or Inf"), std::string::npos);
  }
}

TEST_F(OnNan, RollbackGoesOnFromTheLastCheckpointWithHalfTheRadii) {
  config_.on_nan = "rollback";
  train(*trainer(7, false, /*multiplier=*/1), "run");

  Trainer until_five(config_, std::make_shared<NanoGpt>(options_, config_.seed), data_);
  for (int i = 0; i < 5; ++i) until_five.step();
  Checkpoint five = until_five.checkpoint();
  five.text["rollbacks"] = "1";
  Trainer half(config_, std::make_shared<NanoGpt>(options_, config_.seed), data_);
  half.resume(five);
  EXPECT_EQ(half.optimizer().radius_multiplier(), 0.5);
  train(half, "half");
  expect_same(saved("run"), saved("half"));

  const std::vector<LogRow> rows = RunDirectory::open(folder_.path() / "run").log();
  ASSERT_EQ(rows.size(), 12u);
  for (std::size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(rows[i].step, static_cast<int64_t>(i) + 1);
  EXPECT_EQ(rows[5].radii.at(1).second, rows[4].radii.at(1).second / 2);
  EXPECT_EQ(facts("run")["rollbacks"], 1);
  EXPECT_EQ(saved("run").text.at("rollbacks"), "1");
  EXPECT_EQ(samples("run").find("\n9,"), samples("run").rfind("\n9,transformer.h.0.attn.c_q"));  // each step once
}

TEST_F(OnNan, ARunKilledAfterARollbackEndsTheSame) {
  config_.on_nan = "rollback";
  train(*trainer(7, false, 1), "whole");
  // Its checkpoint of step 5 is from before the rollback, which the resumed run repeats; that of step 10 from after it.
  Trainer until_five(config_, std::make_shared<NanoGpt>(options_, config_.seed), data_);
  for (int i = 0; i < 5; ++i) until_five.step();
  const Checkpoint ten = read_at("whole", "step-00000010.safetensors");
  for (const Checkpoint& checkpoint : {until_five.checkpoint(), ten}) {
    const std::string name = std::to_string(checkpoint.step);
    const auto resumed = trainer(7, false, 1);
    resumed->resume(checkpoint);
    train(*resumed, name);
    expect_same(saved(name), saved("whole"));
  }
}

// The weights before step 8, also those of a checkpoint, have a NaN gradient: shorter steps from there do not help, those
// before it do.
class DoomedCheckpoint : public OnNan {
 protected:
  DoomedCheckpoint() {
    config_.save_every = 1;
    config_.nan_limit = 3;
    config_.smoothness_every = 0;  // looking ahead would meet the batch with the weights before
  }

  std::unique_ptr<Trainer> doomed_trainer(const std::string& on_nan) {
    config_.on_nan = on_nan;
    auto model = std::make_shared<PoisonedGpt>(options_, config_.seed);
    const torch::Tensor weight = model->layers().front().parameter;
    model->poisoned = [this, weight](const Batch& batch) {
      if (!batch.inputs.equal(data_->train_batch(7, config_.batch).inputs)) return false;
      if (!doomed_.defined()) doomed_ = weight.detach().clone();
      return weight.equal(doomed_);
    };
    return std::make_unique<Trainer>(config_, model, data_);
  }

  void expect_one_rollback(const Trainer& run, const std::string& name) {
    EXPECT_EQ(run.steps_taken(), 12);
    EXPECT_EQ(run.optimizer().radius_multiplier(), 0.5);
    const std::vector<LogRow> rows = RunDirectory::open(folder_.path() / name).log();
    ASSERT_EQ(rows.size(), 12u);
    EXPECT_EQ(rows[6].radii.at(1).second, rows[5].radii.at(1).second / 2);  // step 7 is taken again
    EXPECT_EQ(facts(name)["rollbacks"], 1);
  }

  torch::Tensor doomed_;
};

TEST_F(DoomedCheckpoint, ARollbackGoesToTheOneBefore) {
  const auto run = doomed_trainer("rollback");
  train(*run, "run");
  expect_one_rollback(*run, "run");
  EXPECT_EQ(RunDirectory::open(folder_.path() / "run").rollbacks(), 1);
}

TEST_F(DoomedCheckpoint, ARunThatResumesThereGoesToTheOneBefore) {
  EXPECT_INPUT_ERROR(train(*doomed_trainer("error"), "run"), "holds NaN or Inf");
  const std::filesystem::path folder = folder_.path() / "run/checkpoint";
  const Checkpoint last = load_checkpoint(folder).checkpoint;
  EXPECT_EQ(last.step, 7);
  const auto resumed = doomed_trainer("rollback");
  resumed->resume(last);
  resumed->set_checkpoint_before(load_checkpoint_before(folder, last.step).value());
  train(*resumed, "run");
  expect_one_rollback(*resumed, "run");
}

TEST_F(OnNan, TooManyRollbacksAreAnError) {
  config_.on_nan = "rollback";
  config_.nan_limit = 2;
  const auto poisoned = trainer(7);
  EXPECT_INPUT_ERROR(train(*poisoned, "run"), "after 2 rollbacks (--nan-limit)");
  EXPECT_EQ(poisoned->optimizer().radius_multiplier(), 0.25);
}

}  // namespace
}  // namespace gluon::lab
