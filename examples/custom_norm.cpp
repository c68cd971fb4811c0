// A custom norm: the rows form groups (the heads of an attention layer), and each group is measured by its Euclidean
// length.
//
//   |x| = max over groups of |x_group|_F      |g|* = sum over groups of |g_group|_F
//   lmo(g) = -each group / its length
//
// A norm needs three functions and a name. The library checks its identities, and it trains.
#include <ATen/ATen.h>
#include <gluon/gluon.h>
#include <gluon/testing/norm_identities.h>

#include <iostream>

class RowGroupsNorm : public gluon::Norm {
 public:
  explicit RowGroupsNorm(int64_t groups) : groups_(groups) {}
  std::string name() const override { return "row_groups(" + std::to_string(groups_) + ")"; }

 protected:
  at::Tensor compute_norm(const at::Tensor& x) const override { return lengths(x).amax({1, 2}); }
  at::Tensor compute_dual_norm(const at::Tensor& g) const override { return lengths(g).sum({1, 2}); }
  at::Tensor compute_lmo(const at::Tensor& g) const override {
    const at::Tensor length = lengths(g);
    return (grouped(g) / length.masked_fill(length == 0, 1)).neg_().view(g.sizes());
  }

 private:
  at::Tensor grouped(const at::Tensor& x) const { return x.reshape({x.size(0), groups_, -1}); }
  at::Tensor lengths(const at::Tensor& x) const { return at::linalg_vector_norm(grouped(x), 2, {2}, true); }

  int64_t groups_;
};

int main() {
  const auto norm = std::make_shared<RowGroupsNorm>(4);
  const auto violations = gluon::norm_identity_violations(*norm, at::randn({3, 8, 5}, at::kDouble));
  for (const auto& violation : violations) std::cout << violation << '\n';
  std::cout << norm->name() << ": " << violations.size() << " violated identities\n";

  // f(X) = 1/2 |X - A|^2 with |A| = 1: twenty steps of radius 0.05 reach A.
  const at::Tensor a = norm->lmo(at::randn({1, 8, 5}))[0];
  at::Tensor x = at::zeros({8, 5});
  gluon::Optimizer optimizer({{"x", x}}, gluon::Geometry({{.norm = norm, .radius = 0.05}}),
                             {.momentum = gluon::Momentum::none()});
  for (int step = 0; step < 20; ++step) {
    x.mutable_grad() = x - a;
    optimizer.step();
  }
  const double distance = (x - a).norm().item<double>();
  std::cout << "distance to the minimum after 20 steps: " << distance << '\n';
  return violations.empty() && distance < 1e-5 ? 0 : 1;
}
