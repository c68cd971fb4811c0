// PlainExecutor: a step with ATen and BLAS, stage by stage: gradients, momentum, direction, heading, radius, update.
//
// A batch is cut into runs of blocks that have a gradient, so that scratch memory stays within its limit; each run
// becomes one BatchStep.

#pragma once

#include <span>
#include <string>
#include <vector>

#include "gluon/update/executor.h"
#include "gluon/update/layer_batch.h"

namespace gluon {

class PlainExecutor : public Executor {
 public:
  explicit PlainExecutor(int64_t scratch_bytes) : scratch_bytes_(scratch_bytes) {}

  /// An exception inside a norm, a radius rule or an observer names it and the first layer of its run.
  void run(std::span<LayerBatch* const> batches, const StepContext& now) override;

 private:
  int64_t scratch_bytes_;
};

/// The runs of blocks with a gradient whose scratch (LMO input, direction and heading) fits into `scratch_bytes`; a single
/// matrix larger than that is a run of its own.
std::vector<std::span<const Block>> scratch_runs(const LayerBatch& batch, int64_t scratch_bytes);

/// A BatchStep with the gradients of `run`, the rest still to be filled.
BatchStep gather_gradients(const LayerBatch& batch, std::span<const Block> run, int64_t step);

/// The LMO's input, (c, m, n), from the run's momentum buffer and gradients.
at::Tensor lmo_input(const LayerBatch& batch, const BatchStep& step);

/// Rethrows the exception that is being handled with "<what>, layer '<name>': " before its message. An InputError stays
/// one, running out of memory stays what it is, everything else becomes a std::runtime_error.
[[noreturn]] void rethrow_with_layer(const std::string& what, const Block& block);

}  // namespace gluon
