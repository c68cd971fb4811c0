#include "lab/train/config.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "gluon/core/check.h"
#include "gluon/core/spec.h"
#include "gluon/geometry/presets.h"
#include "gluon/lmo/orthogonalize/orthogonalizer.h"
#include "gluon/smoothness/recorder.h"
#include "gluon/update/qk_clip.h"
#include "lab/models/zoo.h"
#include "lab/train/radius_flag.h"
#include "lab/train/rank_share.h"

namespace gluon::lab {
namespace {

// Products of these sizes fit into 64 bits.
constexpr int64_t kLargestSize = int64_t{1} << 24, kLargestBatch = int64_t{1} << 31;
constexpr int64_t kMostBatches = int64_t{1} << 20, kMostParts = int64_t{1} << 16;
constexpr int64_t kMostSteps = int64_t{1} << 53;  // exact as a double, and so are shares of it

// Models train in float32: beyond these, factors of schedules, widths and bias corrections over- or underflow.
constexpr double kSmallestRadius = 1e-30, kLargestRadius = 1e30;

void check_radius(double radius, const std::string& what) {
  if (radius >= kSmallestRadius && radius <= kLargestRadius) return;
  throw RadiusOutOfRange(
      join(what, " must be in ", kSmallestRadius, "..", kLargestRadius, ", the range of float32, got ", radius));
}

void check_radii(const TrainConfig& config) {
  for (const auto& [key, value] : radius_entries(config.radius)) {
    const Spec rule = parse_spec(value, "--radius " + key);
    for (const std::string& number : rule.arguments.empty() ? std::vector{rule.name} : rule.arguments) {
      const double radius = parse_number(number, "--radius " + key);
      if (radius != 0) check_radius(radius, "--radius " + key);  // L0 or L1 may be 0
    }
  }
  if (config.lr > 0) check_radius(config.lr, "--lr");
  if (config.weight_decay > 0) check_radius(config.weight_decay, "--weight-decay");
  if (!config.decay.empty() && !Decay(config.decay).is_none()) check_radius(Decay(config.decay).weight(), "--decay");
  const Geometry geometry = config.geometry();
  for (const Rule& rule : geometry.rules()) {  // products, such as gamma times a radius
    if (const auto radius = rule.radius->constant()) check_radius(*radius, "a radius of --preset " + config.preset);
  }
}

// cpu, cuda, or cuda:N as torch::Device reads it: without leading zeros.
bool is_device(std::string_view name) {
  if (name == "cpu" || name == "cuda") return true;
  if (!name.starts_with("cuda:")) return false;
  name.remove_prefix(5);
  return (name.size() == 1 || (name.size() == 2 && name[0] != '0')) &&
         name.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

void TrainConfig::validate() const {
  GLUON_CHECK(steps >= 1, "--steps must be >= 1, got ", steps);
  GLUON_CHECK(steps <= kMostSteps, "--steps must be <= ", kMostSteps, ", got ", steps);
  GLUON_CHECK(batch >= 1 && batch <= kLargestBatch, "--batch must be in 1..", kLargestBatch, ", got ", batch);
  GLUON_CHECK(accumulate >= 1 && accumulate <= kMostBatches, "--accumulate must be in 1..", kMostBatches, ", got ",
              accumulate);
  for (const auto& [flag, value] :
       {std::pair("--layers", layers), std::pair("--width", width), std::pair("--heads", heads),
        std::pair("--seq", seq), std::pair("--vocabulary", vocabulary)}) {
    GLUON_CHECK(value >= 0 && value <= kLargestSize, flag, " must be in 1..", kLargestSize,
                ", or 0 for the model's default, got ", value);
  }
  GLUON_CHECK(val_tokens >= 0, "--val-tokens must be >= 1, or 0 for the default, got ", val_tokens);
  GLUON_CHECK(train_images >= 0, "--train-images must be >= 1, or 0 for all, got ", train_images);
  GLUON_CHECK(test_images >= 0, "--test-images must be >= 1, or 0 for all, got ", test_images);
  GLUON_CHECK(eval_every >= 1, "--eval-every must be >= 1, got ", eval_every);
  GLUON_CHECK(save_every >= 1, "--save-every must be >= 1, got ", save_every);
  GLUON_CHECK(on_nan == "error" || on_nan == "skip" || on_nan == "rollback",
              "--on-nan must be error, skip or rollback, got '", on_nan, "'");
  GLUON_CHECK(nan_limit >= 1, "--nan-limit must be >= 1, got ", nan_limit);
  GLUON_CHECK(std::isfinite(clip) && clip >= 0, "--clip must be finite and >= 0, got ", clip);
  GLUON_CHECK(std::isfinite(lr) && lr >= 0, "--lr must be finite and > 0, got ", lr);
  GLUON_CHECK(std::isfinite(weight_decay), "--weight-decay must be finite, got ", weight_decay);
  GLUON_CHECK(std::isfinite(qk_clip) && (qk_clip <= 0 || (qk_clip >= kSmallestRadius && qk_clip <= kLargestRadius)),
              "--qk-clip must be in ", kSmallestRadius, "..", kLargestRadius,
              ", the range of float32, or 0 for none, got ", qk_clip);
  GLUON_CHECK(std::isfinite(label_smoothing) && label_smoothing < 1,
              "--label-smoothing must be in [0, 1), or negative for the model's default, got ", label_smoothing);
  GLUON_CHECK(parts >= 0 && parts <= kMostParts, "--parts must be in 0..", kMostParts, ", got ", parts);
  GLUON_CHECK(!full_batch || accumulate == 1, "--full-batch and --accumulate exclude each other");
  GLUON_CHECK(is_device(device), "--device must be cpu, cuda or cuda:N with N in 0..99, got '", device, "'");
  GLUON_CHECK(precision.empty() || precision == "float32" || precision == "bfloat16",
              "--precision must be float32 or bfloat16, got '", precision, "'");
  if (!orthogonalizer.empty()) (void)make_orthogonalizer(orthogonalizer);
  if (!momentum.empty()) (void)make_momentum(momentum);
  (void)is_language_model(model);
  check_radii(*this);
  GLUON_CHECK(smoothness_every >= 0, "--smoothness-every must be >= 1, or 0 for no samples, got ", smoothness_every);
  GLUON_CHECK(smoothness_start >= 0, "--smoothness-start must be >= 0, got ", smoothness_start);
  (void)measuring_geometry();
  RecorderOptions{.estimator = estimator(), .dual = smoothness_dual}.validate();
  GLUON_CHECK(estimator() != Estimator::kFull || full_batch, "--smoothness-mode full needs --full-batch");
  GLUON_CHECK(estimator() == Estimator::kFull || !full_batch,
              "--full-batch needs --smoothness-mode full or an empty one, got ", smoothness_mode);
  (void)resolved_schedule();
}

Geometry TrainConfig::geometry() const {
  std::map<std::string, double> radii = parse_radii(radius);
  GLUON_CHECK(radius != kAutoRadius || preset == "sphere", "--radius auto: preset ", preset,
              " has no law for its radii, only sphere has one");
  if (preset == "sphere") {
    GLUON_CHECK(radii.emplace("steps", steps).second, "--radius steps: preset sphere takes them from --steps");
  }
  if (lr > 0) {
    GLUON_CHECK(preset == "adamw" || presets::is_muon(preset), "--lr is the learning rate of AdamW; preset ", preset,
                " takes --radius instead");
    const char* group = preset == "adamw" ? "all" : "adamw";
    GLUON_CHECK(radii.emplace(group, lr).second, "--lr and --radius ", group, " set the same learning rate; give one");
  }
  GLUON_CHECK(decay.empty() || weight_decay < 0, "--weight-decay ", weight_decay, " and --decay ", decay,
              " set the same; give one");
  const Geometry geometry = with_radius_rules(presets::make(preset, radii), preset, radius);
  std::vector<Rule> rules = geometry.rules();
  for (Rule& rule : rules) {
    if (!decay.empty()) rule.decay = decay;
    if (weight_decay >= 0) rule.decay = weight_decay;
    if (!normalize.empty() && rule.norm.is_spectral()) rule.normalize = normalize;
  }
  return Geometry(std::move(rules), geometry.momentum());
}

bool TrainConfig::radii_follow_gradients() const { return preset == "deterministic_gluon" || preset == "sgd"; }

Geometry TrainConfig::measuring_geometry() const {
  if (smoothness_geometry.empty()) return gluon::measuring_geometry(geometry());
  std::map<std::string, double> radii;  // measure nothing
  if (smoothness_geometry == "sphere") radii["steps"] = 1;
  return gluon::measuring_geometry(presets::make(smoothness_geometry, radii));
}

Estimator TrainConfig::estimator() const {
  if (smoothness_mode.empty()) return full_batch ? Estimator::kFull : Estimator::kSameBatch;
  for (const Estimator mode : {Estimator::kConsecutive, Estimator::kFull, Estimator::kSameBatch}) {
    if (smoothness_mode == estimator_name(mode)) return mode;
  }
  throw InputError(join("--smoothness-mode must be consecutive, full or same_batch, got '", smoothness_mode, "'"));
}

Schedule TrainConfig::resolved_schedule() const {
  if (!schedule.empty()) return make_schedule(schedule);
  return Schedule::linear(steps, preset == "sphere" ? steps : steps * 3 / 10);
}

double TrainConfig::resolved_label_smoothing() const {
  if (label_smoothing >= 0) return label_smoothing;
  return model == "cifar-cnn" ? 0.2 : 0;
}

double TrainConfig::resolved_qk_clip() const {
  if (qk_norm || !is_language_model(model)) return 0;
  if (qk_clip >= 0) return qk_clip;
  return preset == "muonclip" ? QkClipOptions{}.tau : 0;
}

bool TrainConfig::smooths_language() const { return resolved_label_smoothing() > 0 && is_language_model(model); }

int64_t TrainConfig::parts_for(int ranks) const {
  if (parts > 0) return parts;
  // A GPU is slow on small parts, and batch norm needs the whole batch.
  const bool one_piece = ranks == 0 || on_gpu() || model == "cifar-cnn";
  return one_piece ? 1 : common_parts(ranks);
}

}  // namespace gluon::lab
