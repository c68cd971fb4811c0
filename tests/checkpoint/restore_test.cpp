// An optimizer's state in a file of its own, and tensors restored by name.

#include <ATen/ATen.h>

#include <algorithm>
#include <map>

#include "gluon/checkpoint/checkpoint.h"
#include "gluon/checkpoint/safetensors.h"
#include "gluon/geometry/presets.h"
#include "gluon/update/optimizer.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"
#include "tests/update/models.h"

namespace gluon {
namespace {

TEST(SaveOptimizer, ALoadedOptimizerContinuesWithTheSameBits) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "optimizer.safetensors";
  for (const char* preset : {"muon", "scion", "sgd", "adamw"}) {
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
                     "is not an optimizer state: its metadata has no 'gluon.optimizer.version'");
  std::vector<Layer> others = cnn_layers();
  Optimizer other(others, presets::unscion());
  save_optimizer(path, other);
  EXPECT_INPUT_ERROR(load_optimizer(path, optimizer), "is missing");
  EXPECT_EQ(optimizer.steps_taken(), 1);
  EXPECT_INPUT_ERROR(save_optimizer(folder.path() / "none" / "file", optimizer), "No such file or directory");
}

TEST(RestoreTensors, CopiesByName) {
  const at::Tensor w = at::zeros({2, 3}).requires_grad_();
  const at::Tensor view = at::zeros({3, 2}).t();
  restore_tensors({{"w", at::ones({2, 3})}, {"v", at::full({2, 3}, 2.0)}}, {{"w", w}, {"v", view}});
  EXPECT_TRUE(w.equal(at::ones({2, 3})));
  EXPECT_TRUE(view.equal(at::full({2, 3}, 2.0)));
}

TEST(RestoreTensors, ErrorsCopyNothing) {
  const at::Tensor a = at::zeros({2});
  const at::Tensor b = at::zeros({3});
  const std::map<std::string, at::Tensor> targets{{"a", a}, {"b", b}};
  const at::Tensor good = at::ones({2});
  EXPECT_INPUT_ERROR(restore_tensors({{"a", good}}, targets), "restore_tensors: 'b' is missing");
  EXPECT_INPUT_ERROR(restore_tensors({{"a", good}, {"b", at::ones({4})}}, targets),
                     "restore_tensors: 'b' is [4] Float, expected [3] Float");
  EXPECT_INPUT_ERROR(restore_tensors({{"a", good}, {"b", at::ones({3}, at::kDouble)}}, targets),
                     "restore_tensors: 'b' is [3] Double, expected [3] Float");
  EXPECT_INPUT_ERROR(restore_tensors({{"a", good}, {"b", at::Tensor()}}, targets), "'b' has no values");
  EXPECT_INPUT_ERROR(restore_tensors({{"a", good}}, {{"a", at::Tensor()}}), "'a' has no values");
  EXPECT_INPUT_ERROR(restore_tensors({{"a", good}, {"b", at::ones({3})}, {"c", good}}, targets),
                     "restore_tensors: 'c' is unknown here");
  EXPECT_TRUE(a.equal(at::zeros({2})));
  EXPECT_TRUE(b.equal(at::zeros({3})));
}

}  // namespace
}  // namespace gluon
