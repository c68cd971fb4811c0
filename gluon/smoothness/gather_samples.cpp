#include "gluon/smoothness/gather_samples.h"

namespace gluon {
namespace {

// A sample as numbers: the index of its layer, its step, then its values.
constexpr std::size_t kNumbers = 2 + kSampleValues.size();

}  // namespace

Trajectory gather_samples(Collective& collective, const Trajectory& mine) {
  std::vector<double> rows;
  for (std::size_t layer = 0; layer < mine.layers.size(); ++layer) {
    for (const Sample& sample : mine.layers[layer].samples) {
      rows.push_back(static_cast<double>(layer));
      rows.push_back(static_cast<double>(sample.step));
      for (const auto value : kSampleValues) rows.push_back(sample.*value);
    }
  }
  Trajectory all = mine;
  for (LayerTrajectory& layer : all.layers) layer.samples.clear();
  const std::vector<double> gathered = gather(collective, rows);
  for (std::size_t at = 0; at < gathered.size(); at += kNumbers) {
    Sample sample{.step = static_cast<int64_t>(gathered[at + 1])};
    for (std::size_t i = 0; i < kSampleValues.size(); ++i) sample.*kSampleValues[i] = gathered[at + 2 + i];
    all.layers[static_cast<std::size_t>(gathered[at])].samples.push_back(sample);
  }
  return all;
}

}  // namespace gluon
