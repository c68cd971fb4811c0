// Cifar10: the images of CIFAR-10 from its binary batches, with the augmentation of the airbench experiments.
//
//   data_batch_1.bin ... data_batch_5.bin, test_batch.bin, each also as .bin.xz
//   an image: 1 label byte 0..9, then 3 x 32 x 32 bytes: the red, the green, the blue plane, rows from the top
//
// Inputs are (value / 255 - mean) / deviation per channel. Augmentation of image n in epoch e, both from the seed:
//   flip       left-right in every other epoch; half of the images start with the first epoch
//   translate  by dx, dy, uniform in -2..2; the border is filled by reflection
//
// A batch of all training images is in file order, so that every step of a full-batch run sums the same numbers in the
// same order. Smaller batches take the images in a different order every epoch.

#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lab/data/dataset.h"

namespace gluon::lab {

struct CifarOptions {
  uint64_t seed = 0;         // of the order and the augmentation
  int64_t train_images = 0;  // use only the first N; 0 = all
  int64_t test_images = 0;   // use only the first N; 0 = all
  bool flip = false;
  int64_t translate = 0;  // by up to N pixels, at most 31; airbench: 2
};

class Cifar10 : public Dataset {
 public:
  /// Reads the necessary batches from `folder`. Throws InputError on missing, short or corrupt files, a label above 9,
  /// and fewer images than requested.
  Cifar10(const std::filesystem::path& folder, const CifarOptions& options);

  Batch train_batch(int64_t index, int64_t size) const override;
  std::vector<Batch> validation(int64_t size) const override;
  int64_t train_examples() const override { return train_.inputs.size(0); }
  int64_t tokens_per_example() const override { return 1; }
  int64_t classes() const override { return 10; }
  std::string describe() const override;

  /// The first `count` training images (0 = all), normalised, in file order, not augmented: (count, 3, 32, 32)
  /// float32, for a whitening layer.
  torch::Tensor train_images(int64_t count = 0) const;

 private:
  std::string folder_;
  CifarOptions options_;
  Batch train_;  // inputs (N, 3, 32, 32) uint8
  Batch test_;
};

}  // namespace gluon::lab
