// TrainConfig: one run, completely described. Flags and config files fill the same fields (cli/train_options.cpp); the
// resolved config is printed, stored in the run directory and in every checkpoint.

#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "gluon/geometry/geometry.h"
#include "gluon/radius/schedule.h"
#include "gluon/smoothness/sample.h"

namespace gluon::lab {

struct TrainConfig {
  // what learns
  std::string model = "nanogpt-tiny";
  int64_t layers = 0;  // 0: the model's own; the same below
  int64_t width = 0;
  int64_t heads = 0;
  int64_t seq = 0;         // context length in tokens
  int64_t vocabulary = 0;  // tokens the model knows; nanogpt-tiny's own is the data's

  // from what
  std::string data;          // file, glob or directory; empty: the project's own sources
  std::string vocab;         // folder with encoder.json and vocab.bpe, to tokenize text; empty: bytes
  int64_t train_images = 0;  // only the first so many images of CIFAR-10; 0: all
  int64_t test_images = 0;

  // how
  std::string preset = "unscion";
  std::string radius;           // "hidden=0.018,embedding=1.08": instead of the preset's own
  double lr = 0;                // AdamW's learning rate; 0: the preset's own
  double weight_decay = -1;     // decoupled; below 0: the preset's own
  std::string momentum;         // empty: the preset's own
  std::string schedule;         // empty: constant, then linear to 0 over the last 30 % of the steps
  std::string orthogonalizer;   // empty: the library's default
  double clip = 1;              // largest gradient norm under AdamW alone; 0: no clipping
  double label_smoothing = -1;  // below 0: 0.2 for the CNN, 0 for language
  int64_t steps = 400;
  int64_t batch = 16;
  int64_t accumulate = 1;   // batches per step
  bool full_batch = false;  // one step = the whole training set, in batches of `batch`
  int64_t parts = 0;        // of a batch, which ranks share (rank_share.h); 0: parts_for() the ranks
  bool deterministic =
      false;  // the same bits again on a GPU, too, where LibTorch can; on the CPU they always are
  uint64_t seed = 0;
  std::string device = "cpu";
  std::string precision;   // of losses: float32 or bfloat16; empty: bfloat16 on a GPU, if the model can
  bool cuda_graph = true;  // forward and backward pass as one CUDA graph

  // what is written
  std::string out;  // run directory; empty: runs/<model>-<preset>-<number>
  int64_t eval_every = 50;
  int64_t save_every = 200;

  // what is measured (gluon/smoothness/recorder.h)
  int64_t smoothness_every = 0;     // steps between samples; 0: none
  std::string smoothness_mode;      // empty: full with --full-batch, else same_batch
  std::string smoothness_geometry;  // preset whose norms measure; empty: the run's own, unscion's for AdamW
  std::string smoothness_dual = "auto";  // of spectral norms: exact, an orthogonalizer or auto

  /// Throws InputError naming the flag, its value and what is allowed.
  void validate() const;

  Geometry geometry() const;
  Schedule resolved_schedule() const;
  double resolved_label_smoothing() const;
  bool smooths_language() const;  // which no kernel does in bfloat16
  Geometry measuring_geometry() const;
  Estimator estimator() const;

  /// `parts`, or a good number for so many ranks; 0 ranks: nobody asked for any.
  int64_t parts_for(int ranks) const;
};

/// "hidden=0.018,embedding=1.08" as a map. Throws InputError on anything else.
std::map<std::string, double> parse_radii(const std::string& text);

}  // namespace gluon::lab
