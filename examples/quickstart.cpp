// Two interleaved spirals, a small network, 80 steps: unconstrained Scion against AdamW with its best learning rate.
#include <gluon/gluon.h>
#include <torch/torch.h>

#include <iostream>

struct Net : torch::nn::Module {
  torch::nn::Linear in{register_module("in", torch::nn::Linear(2, 128))};
  torch::nn::Linear mid{register_module("mid", torch::nn::Linear(128, 128))};
  torch::nn::Linear out{register_module("out", torch::nn::Linear(128, 128))};
  torch::nn::Linear head{register_module("head", torch::nn::Linear(128, 2))};
  torch::Tensor forward(torch::Tensor x) { return head(out(mid(in(x).relu()).relu()).relu()); }
};

double train(const torch::Tensor& x, const torch::Tensor& y, const gluon::Geometry& geometry) {
  torch::manual_seed(0);
  Net model;
  const auto schedule = gluon::Schedule::linear(80, 40);
  gluon::Optimizer optimizer(gluon::layers_of(model), geometry, {.schedule = schedule});
  std::cout << optimizer.routing_report();
  torch::Tensor loss;
  for (int step = 0; step < 80; ++step) {
    optimizer.zero_grad();
    loss = torch::cross_entropy_loss(model.forward(x), y);
    loss.backward();
    optimizer.step();
  }
  std::cout << "loss " << loss.item<double>() << "\n\n";
  return loss.item<double>();
}

int main() {
  const auto y = torch::arange(2000) % 2, t = torch::linspace(0, 14, 2000), angle = t + M_PI * y;
  const auto x = torch::stack({t * angle.cos(), t * angle.sin()}, 1) / 5;
  const auto geometry = gluon::presets::unscion({.hidden = 0.05, .head = 1});
  double unscion = train(x, y, geometry), adamw = INFINITY;
  for (double r : {1e-3, 3e-3, 1e-2, 3e-2}) adamw = std::min(adamw, train(x, y, gluon::presets::adamw(r)));
  std::cout << "unscion  " << unscion << "\nadamw    " << adamw << "  (best of four learning rates)\n"
            << (unscion < adamw ? "unscion" : "adamw") << " is ahead after 80 steps\n";
}
