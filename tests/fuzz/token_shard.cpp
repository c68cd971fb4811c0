#include "lab/data/token_dataset.h"
#include "tests/fuzz/fuzz_targets.h"
#include "tests/fuzz/scratch.h"

void gluon::fuzz::token_shard(std::string_view bytes) {
  static const Scratch scratch("token_shard");
  const lab::TokenDataset data =
      lab::TokenDataset::from_files(scratch.write("000.bin", bytes).string(), {.context = 4, .seed = 1});
  for (const lab::Batch& batch : {data.train_batch(0, 3), data.validation(2).front()}) {
    require(batch.inputs.min().item<int64_t>() >= 0 && batch.targets.max().item<int64_t>() < data.classes());
  }
}
