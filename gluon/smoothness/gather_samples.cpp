#include "gluon/smoothness/gather_samples.h"

#include <array>

namespace gluon {
namespace {

// A sample as numbers: its layer's place, its step, and what was measured.
using Row = std::array<double, 9>;

Row to_row(std::size_t layer, const Sample& sample) {
  return {static_cast<double>(layer),
          static_cast<double>(sample.step),
          sample.gradient_change,
          sample.displacement,
          sample.smoothness,
          sample.gradient,
          sample.momentum,
          sample.alignment,
          sample.radius};
}

Sample from_row(const double* row) {
  return {.step = static_cast<int64_t>(row[1]),
          .gradient_change = row[2],
          .displacement = row[3],
          .smoothness = row[4],
          .gradient = row[5],
          .momentum = row[6],
          .alignment = row[7],
          .radius = row[8]};
}

}  // namespace

Trajectory gather_samples(Collective& collective, const Trajectory& mine) {
  std::vector<double> rows;
  for (std::size_t layer = 0; layer < mine.layers.size(); ++layer) {
    for (const Sample& sample : mine.layers[layer].samples) {
      const Row row = to_row(layer, sample);
      rows.insert(rows.end(), row.begin(), row.end());
    }
  }
  Trajectory all = mine;
  for (LayerTrajectory& layer : all.layers) layer.samples.clear();
  const std::vector<double> gathered = gather(collective, rows);
  for (std::size_t at = 0; at < gathered.size(); at += std::tuple_size_v<Row>) {
    const double* row = gathered.data() + at;
    all.layers[static_cast<std::size_t>(row[0])].samples.push_back(from_row(row));
  }
  return all;
}

}  // namespace gluon
