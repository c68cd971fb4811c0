#include "lab/data/cifar10.h"

#include "tests/fuzz/fuzz_targets.h"
#include "tests/fuzz/scratch.h"

void gluon::fuzz::cifar10(std::string_view bytes) {
  static const Scratch scratch("cifar10");
  // The first byte says how many of the images are asked for, and how they are changed.
  const int choice = bytes.empty() ? 0 : static_cast<unsigned char>(bytes[0]);
  bytes.remove_prefix(bytes.empty() ? 0 : 1);
  for (const char* name : {"data_batch_1.bin", "test_batch.bin"}) scratch.write(name, bytes);
  const lab::Cifar10 data(
      scratch.folder(),
      {.train_images = 1 + choice % 3, .test_images = choice % 2, .flip = choice > 127, .translate = choice % 32});
  const lab::Batch batch = data.train_batch(choice, 2);
  require(batch.targets.min().item<int64_t>() >= 0 && batch.targets.max().item<int64_t>() < data.classes());
  require(batch.inputs.isfinite().all().item<bool>());
  (void)data.validation(2);
}
