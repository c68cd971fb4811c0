#include "lab/train/qk_clipper.h"

#include <ATen/ATen.h>

#include <limits>
#include <utility>

#include "gluon/update/qk_clip.h"

namespace gluon::lab {

QkClipper::QkClipper(Model& model, double tau, CollectivePtr collective)
    : layers_(model.watch_logits()), tau_(tau), collective_(std::move(collective)) {}

void QkClipper::begin_step() {
  for (const AttentionLogits& layer : layers_) layer.largest.fill_(-std::numeric_limits<double>::infinity());
}

void QkClipper::take_logits() {
  std::vector<at::Tensor> mine;
  for (const AttentionLogits& layer : layers_) mine.push_back(layer.largest);
  const at::Tensor own = at::cat(mine);
  // A sum in which every rank has a row of its own: the backends have no exact maximum for NaN.
  const at::Tensor all = at::zeros({collective_->size(), own.size(0)}, own.options());
  all[collective_->rank()].copy_(own);
  collective_->all_reduce(all)->wait();
  logits_ = all.amax(0);
}

void QkClipper::clip() const {
  int64_t begin = 0;
  for (const AttentionLogits& layer : layers_) {
    const int64_t heads = layer.largest.size(0);
    qk_clip(layer.query, layer.key, logits_.narrow(0, begin, heads), {.tau = tau_});
    begin += heads;
  }
}

}  // namespace gluon::lab
