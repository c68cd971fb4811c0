#include "lab/train/validation.h"

#include <torch/utils.h>

#include <vector>

namespace gluon::lab {
namespace {

struct Total {
  double sum = 0;
  double count = 0;
};

// The mean over all batches and ranks of what `measure` adds to the total for one batch.
template <typename Measure>
double mean_over_validation(Model& model, const Dataset& dataset, int64_t batch, const RankShare& share,
                            const Measure& measure) {
  const torch::NoGradGuard no_grad;
  model.eval();
  share.copy_from_first(model.buffers());
  const torch::Device device = model.parameters().front().device();
  Total total;
  for (const Batch& whole : dataset.validation(batch)) {
    const Batch mine = share.of(whole);
    if (mine.inputs.size(0) == 0) continue;
    measure(Batch{mine.inputs.to(device), mine.targets.to(device)}, total);
  }
  const std::vector<double> all = share.sum({total.sum, total.count});
  return all[0] / all[1];
}

}  // namespace

double validation_loss(Model& model, const Dataset& dataset, int64_t batch, const RankShare& share) {
  return mean_over_validation(model, dataset, batch, share, [&](const Batch& mine, Total& total) {
    const auto examples = static_cast<double>(mine.inputs.size(0));
    total.sum += model.loss(mine, 0).item<double>() * examples;
    total.count += examples;
  });
}

double validation_accuracy(Model& model, const Dataset& dataset, int64_t batch, const RankShare& share) {
  return mean_over_validation(model, dataset, batch, share, [&](const Batch& mine, Total& total) {
    total.sum += model.forward(mine.inputs).argmax(-1).eq(mine.targets).sum().item<double>();
    total.count += static_cast<double>(mine.targets.numel());
  });
}

}  // namespace gluon::lab
