// Trains the model of conftest.py for 20 steps and writes the bytes of all parameters, which test_parity.py compares.

#include <gluon/gluon.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <fstream>

struct Net : torch::nn::Module {
  torch::nn::Embedding embed{register_module("embed", torch::nn::Embedding(11, 6))};
  torch::nn::Linear up{register_module("up", torch::nn::Linear(6, 12))};
  torch::nn::Linear down{register_module("down", torch::nn::Linear(12, 6))};
  torch::nn::LayerNorm norm{register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({6})))};
  torch::nn::Linear head{register_module("head", torch::nn::Linear(torch::nn::LinearOptions(6, 11).bias(false)))};

  torch::Tensor loss(const torch::Tensor& tokens) {
    const auto logits = head(norm(down(torch::relu(up(embed(tokens.slice(1, 0, -1)))))));
    return torch::nn::functional::cross_entropy(logits.flatten(0, 1), tokens.slice(1, 1).flatten());
  }
};

// Arguments: preset, file.
int main(int, char** arguments) {
  torch::set_num_threads(1);
  torch::manual_seed(0);
  Net model;
  const std::string preset = arguments[1];
  const std::map<std::string, double> radii{{"steps", 20}};
  const auto geometry = preset == "sphere" ? gluon::presets::make(preset, radii) : gluon::presets::make(preset);
  gluon::Optimizer optimizer(gluon::layers_of(model), geometry, {.schedule = gluon::Schedule::linear(20, 10)});
  for (int64_t step = 0; step < 20; ++step) {
    const auto tokens = ((torch::arange(40) * 7 + step * 3) % 11).view({8, 5});
    optimizer.zero_grad();
    model.loss(tokens).backward();
    optimizer.step();
  }
  std::ofstream file(arguments[2], std::ios::binary);
  for (const torch::Tensor& parameter : model.parameters()) {
    const torch::Tensor data = parameter.detach().contiguous();
    file.write(static_cast<const char*>(data.data_ptr()), static_cast<std::streamsize>(data.nbytes()));
  }
}
