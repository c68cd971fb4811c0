// TrainConfig: the complete description of a run. The table of config fields (config_fields.h) maps its members to
// flags and to the keys of config.toml; the config is printed, and stored in the run directory and in every checkpoint.

#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "gluon/core/check.h"
#include "gluon/geometry/geometry.h"
#include "gluon/radius/schedule.h"
#include "gluon/smoothness/sample.h"

namespace gluon::lab {

/// What TrainConfig::validate() throws for a radius, a learning rate or a decay beyond float32: others may still train.
class RadiusOutOfRange : public InputError {
 public:
  using InputError::InputError;
};

struct TrainConfig {
  // model
  std::string model = "nanogpt-tiny";
  int64_t layers = 0;  // 0: the model's default; also below
  int64_t width = 0;
  int64_t heads = 0;
  int64_t seq = 0;         // context length in tokens
  int64_t vocabulary = 0;  // 0: the model's default; for nanogpt-tiny that of the data
  bool qk_norm = true;     // of queries and keys

  // data
  std::string data;          // file, glob or directory; empty: the project's own sources
  std::string vocab;         // folder with encoder.json and vocab.bpe, to tokenize text; empty: bytes
  std::string val_data;      // file, glob or directory; empty: the end of `data`
  int64_t val_tokens = 0;    // 0: all of val_data; without it a tenth of data, at most 64 windows
  int64_t train_images = 0;  // use only the first N images of CIFAR-10; 0: all
  int64_t test_images = 0;

  // training
  std::string preset = "unscion";
  std::string radius;           // "hidden=0.018,embedding=1.08": replaces the preset's radii; "auto": sphere's own law
  double lr = 0;                // learning rate of AdamW; 0: the preset's default
  double weight_decay = -1;     // decoupled; negative: the preset's default
  std::string decay;            // any form, instead of weight_decay; empty: the preset's default
  std::string normalize;        // of the layers with spectral norms; empty: the preset's default
  std::string momentum;         // empty: the preset's default
  std::string schedule;         // empty: linear to 0 over the last 30 % of the steps, under sphere over all
  std::string orthogonalizer;   // empty: the library's default
  double clip = 1;              // largest gradient norm, preset adamw only; 0: no clipping
  double qk_clip = -1;          // largest attention logit; 0: none; negative: muonclip's, else none
  double label_smoothing = -1;  // negative: 0.2 for the CNN, 0 for language
  int64_t steps = 400;
  int64_t batch = 16;
  int64_t accumulate = 1;      // batches per step
  bool full_batch = false;     // every step uses the whole training set, in batches of `batch`
  int64_t parts = 0;           // of a batch, shared by ranks (rank_share.h); 0: see parts_for()
  bool deterministic = false;  // same bits in every run on a GPU, where LibTorch can; the CPU always does
  uint64_t seed = 0;
  std::string device = "cpu";  // cuda: the current GPU, with ranks one for each; cuda:N
  std::string precision;       // of losses: float32 or bfloat16; empty: bfloat16 on a GPU if the model supports it
  bool cuda_graph = true;      // forward and backward pass as one CUDA graph

  // output
  std::string out;  // run directory; empty: runs/<model>-<preset>-<number>
  int64_t eval_every = 50;
  int64_t save_every = 200;

  // gradients with NaN or Inf
  std::string on_nan = "error";  // or skip, rollback: see Trainer::try_step()
  int64_t nan_limit = 10;        // batches left out in a row, or rollbacks of the run

  // smoothness samples (gluon/smoothness/recorder.h)
  int64_t smoothness_every = 0;          // steps between samples; 0: none
  int64_t smoothness_start = 0;          // no sample begins before this step
  std::string smoothness_mode;           // empty: full with --full-batch, otherwise same_batch
  std::string smoothness_geometry;       // preset whose norms measure; empty: the run's preset, unscion for AdamW
  std::string smoothness_dual = "auto";  // of spectral norms: exact, an orthogonalizer or auto

  /// Throws InputError naming the flag, its value and what is allowed.
  void validate() const;

  bool on_gpu() const { return device != "cpu"; }
  Geometry geometry() const;
  bool radii_follow_gradients() const;  // a small radius is then no sign of a cooldown
  Schedule resolved_schedule() const;
  double resolved_label_smoothing() const;
  double resolved_qk_clip() const;  // 0: none are clipped
  bool smooths_language() const;    // the bfloat16 kernels do not support it
  Geometry measuring_geometry() const;
  Estimator estimator() const;

  /// `parts`, or the default for that many ranks; 0: a run without ranks.
  int64_t parts_for(int ranks) const;
};

}  // namespace gluon::lab
