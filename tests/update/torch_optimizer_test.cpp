#include "gluon/update/torch_optimizer.h"

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/serialize.h>

#include <sstream>

#include "gluon/geometry/presets.h"
#include "tests/expect_error.h"

namespace gluon {
namespace {

struct Net : torch::nn::Module {
  Net() {
    torch::manual_seed(3);
    conv = register_module("conv", torch::nn::Conv1d(3, 4, 5));
    norm = register_module("norm", torch::nn::BatchNorm1d(4));
    tokens = register_module("tokens", torch::nn::Embedding(7, 6));
    body = register_module("body", torch::nn::Linear(6, 6));
    last = register_module("last", torch::nn::Linear(torch::nn::LinearOptions(6, 7).bias(false)));
    frozen = register_parameter("frozen", torch::ones({2, 2}), /*requires_grad=*/false);
  }
  torch::Tensor loss() {
    const auto x = body(tokens(torch::arange(7)));
    return last(x).square().mean() + norm(conv(torch::ones({2, 3, 9}))).square().mean() +
           (conv->weight - 1).square().sum();
  }
  torch::nn::Conv1d conv{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Embedding tokens{nullptr};
  torch::nn::Linear body{nullptr}, last{nullptr};
  torch::Tensor frozen;
};

Role role_of(const std::vector<Layer>& layers, const std::string& name) {
  for (const Layer& layer : layers) {
    if (layer.name == name) return layer.role;
  }
  ADD_FAILURE() << "no layer " << name;
  return Role::kScalar;
}

TEST(LayersOf, RolesComeFromModulesNamesAndOverrides) {
  const Net net;
  const auto layers = layers_of(net, {{"last.*", Role::kHead}, {"last.w*", Role::kEmbedding}});
  EXPECT_EQ(layers.size(), 8);  // without the frozen one
  EXPECT_EQ(role_of(layers, "conv.weight"), Role::kConv);
  EXPECT_EQ(role_of(layers, "tokens.weight"), Role::kEmbedding);
  EXPECT_EQ(role_of(layers, "body.weight"), Role::kHidden);
  EXPECT_EQ(role_of(layers, "body.bias"), Role::kVector);
  EXPECT_EQ(role_of(layers, "norm.weight"), Role::kVector);
  EXPECT_EQ(role_of(layers, "last.weight"), Role::kHead);  // the first override that matches
  EXPECT_INPUT_ERROR(layers_of(net, {{"lost.*", Role::kHead}}), "no trainable parameter matches 'lost.*'");
}

TEST(LayersOf, HeadIsFoundByItsShape) {
  Net net;
  EXPECT_EQ(role_of(layers_of(net), "last.weight"), Role::kHead);
  EXPECT_EQ(role_of(layers_of(net, {{"last.*", Role::kHidden}}), "last.weight"), Role::kHidden);
  net.tokens->weight.set_requires_grad(false);
  EXPECT_EQ(role_of(layers_of(net), "last.weight"), Role::kHead);
  EXPECT_INPUT_ERROR(layers_of(net, {{"tokens.*", Role::kHead}}), "no trainable parameter matches 'tokens.*'");
}

TEST(LayersOf, TiedParameterIsListedOnce) {
  struct Tied : torch::nn::Module {
    Tied() {
      tokens = register_module("tokens", torch::nn::Embedding(7, 6));
      register_parameter("head", tokens->weight);
    }
    torch::nn::Embedding tokens{nullptr};
  };
  const auto layers = layers_of(Tied());
  ASSERT_EQ(layers.size(), 1);
  EXPECT_EQ(layers[0].role, Role::kEmbedding);
}

TEST(LayersOf, EveryConvolutionHasItsRole) {
  using namespace torch::nn;
  EXPECT_EQ(role_of(layers_of(*Conv1d(3, 4, 5)), "weight"), Role::kConv);
  EXPECT_EQ(role_of(layers_of(*Conv2d(3, 4, 5)), "weight"), Role::kConv);
  EXPECT_EQ(role_of(layers_of(*Conv3d(3, 4, 5)), "weight"), Role::kConv);
  EXPECT_EQ(role_of(layers_of(*EmbeddingBag(5, 4)), "weight"), Role::kEmbedding);
  struct Decoder : Module {
    explicit Decoder(std::shared_ptr<Module> up) { register_module("up", std::move(up)); }
  };
  for (const std::shared_ptr<Module>& up : std::vector<std::shared_ptr<Module>>{
           ConvTranspose1d(4, 2, 3).ptr(), ConvTranspose2d(4, 2, 3).ptr(), ConvTranspose3d(4, 2, 3).ptr()}) {
    EXPECT_INPUT_ERROR(layers_of(Decoder(up)), "'up.weight' is a transposed convolution");
    EXPECT_EQ(role_of(layers_of(Decoder(up), {{"up.weight", Role::kConv}}), "up.weight"), Role::kConv);
  }
}

// One step of a training loop.
void train(Net& net, TorchOptimizer& optimizer) {
  optimizer.zero_grad();
  net.loss().backward();
  optimizer.step();
}

TEST(TorchOptimizer, WorksInATorchLoopAndFollowsTorchSchedulers) {
  Net net;
  TorchOptimizer optimizer(layers_of(net), presets::unscion({.hidden = 0.01, .embedding = 0.05, .conv = 0.05}));
  torch::optim::StepLR schedule(optimizer, 5, 0.5);
  const double start = net.loss().item<double>();
  for (int step = 0; step < 10; ++step) {
    train(net, optimizer);
    schedule.step();
  }
  EXPECT_LT(net.loss().item<double>(), start);
  EXPECT_DOUBLE_EQ(optimizer.core().radius_multiplier(), 0.5);
}

TEST(TorchOptimizer, ClosureIsEvaluatedWithGradients) {
  Net net;
  TorchOptimizer optimizer(layers_of(net), presets::sign_descent());
  const torch::NoGradGuard no_grad;  // of the caller; the closure needs gradients all the same
  const torch::Tensor loss = optimizer.step([&] {
    optimizer.zero_grad();
    torch::Tensor value = net.loss();
    value.backward();
    return value;
  });
  EXPECT_GT(loss.item<double>(), 0);
  EXPECT_EQ(optimizer.core().steps_taken(), 1);
}

TEST(TorchOptimizer, ParametersAddedLaterAreRejected) {
  Net net;
  TorchOptimizer optimizer(layers_of(net), presets::unscion());
  const torch::optim::OptimizerParamGroup group({torch::ones({2, 2})});
  EXPECT_INPUT_ERROR(optimizer.add_param_group(group), "its layers are those given at construction");
  EXPECT_INPUT_ERROR(optimizer.add_parameters({torch::ones({2, 2})}), "its layers are those given at construction");
  torch::optim::Optimizer& base = optimizer;
  base.add_param_group(group);
  EXPECT_INPUT_ERROR(optimizer.step(), "its layers are those given at construction");
}

TEST(TorchOptimizer, TorchSaveAndLoadUseNames) {
  Net first;
  Net second;
  TorchOptimizer source(layers_of(first), presets::muon());
  TorchOptimizer target(layers_of(second), presets::muon());
  for (int step = 0; step < 3; ++step) train(first, source);
  source.param_groups()[0].options().set_lr(0.25);
  std::stringstream file;
  torch::save(source, file);
  torch::load(target, file);
  EXPECT_EQ(target.core().steps_taken(), 3);
  EXPECT_EQ(target.param_groups()[0].options().get_lr(), 0.25);
  const auto expected = source.core().state();
  for (const auto& [name, tensor] : target.core().state().tensors) {
    EXPECT_TRUE(tensor.equal(expected.tensors.at(name))) << name;
  }
}

TEST(TorchOptimizer, ForeignArchiveIsRejected) {
  Net net;
  TorchOptimizer optimizer(layers_of(net), presets::unscion());
  std::stringstream file;
  torch::save(torch::ones({2}), file);
  EXPECT_INPUT_ERROR(torch::load(optimizer, file), "the archive holds no Gluon optimizer");
}

}  // namespace
}  // namespace gluon
