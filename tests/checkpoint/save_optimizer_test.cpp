#include "gluon/checkpoint/checkpoint.h"

#include <ATen/ATen.h>

#include "gluon/checkpoint/safetensors.h"
#include "gluon/geometry/presets.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"
#include "tests/update/models.h"

namespace gluon {
namespace {

TEST(SaveOptimizer, ALoadedOptimizerContinuesWithTheSameBits) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "optimizer.safetensors";
  for (const char* preset : {"muon", "scion", "adamw"}) {
    std::vector<Layer> layers = transformer_layers();
    Optimizer optimizer(layers, presets::make(preset));
    train(optimizer, layers, 3);
    save_optimizer(path, optimizer);
    std::vector<Layer> copy = transformer_layers();
    for (std::size_t i = 0; i < copy.size(); ++i) copy[i].parameter.copy_(layers[i].parameter);
    std::reverse(copy.begin(), copy.end());  // names count, not the order
    Optimizer loaded(copy, presets::make(preset));
    load_optimizer(path, loaded);
    EXPECT_EQ(loaded.steps_taken(), 3);
    std::reverse(copy.begin(), copy.end());
    train(optimizer, layers, 2);
    train(loaded, copy, 2);
    EXPECT_TRUE(bitwise_equal(copy, copies_of(layers))) << preset;
  }
}

TEST(SaveOptimizer, FilesThatDoNotFitAreRefusedWithNothingChanged) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "optimizer.safetensors";
  std::vector<Layer> layers = transformer_layers();
  Optimizer optimizer(layers, presets::unscion());
  train(optimizer, layers, 1);
  EXPECT_INPUT_ERROR(load_optimizer(path, optimizer), "optimizer.safetensors");
  write_safetensors(path, {.tensors = {{"w", at::ones({2})}}});
  EXPECT_INPUT_ERROR(load_optimizer(path, optimizer),
                     "holds no optimizer state: the metadata 'gluon.optimizer.version' is missing");
  std::vector<Layer> others = cnn_layers();
  Optimizer other(others, presets::unscion());
  save_optimizer(path, other);
  EXPECT_INPUT_ERROR(load_optimizer(path, optimizer), "is missing");
  EXPECT_EQ(optimizer.steps_taken(), 1);
  EXPECT_INPUT_ERROR(save_optimizer(folder.path() / "none" / "file", optimizer), "No such file or directory");
}

}  // namespace
}  // namespace gluon
