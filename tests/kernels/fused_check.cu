// fused_check [check|speed]: both without an argument. Exits 1 when a check fails.
//
//   nvcc -std=c++20 -O3 -gencode arch=compute_90a,code=sm_90a -I. tests/kernels/fused_check*.cu
//     gluon/kernels/cuda/{momentum,update,sign_update,rms_norm,qk_rotary,cross_entropy,embedding_gradient,
//     mlp_product,tensor_map}.cu

#include "tests/kernels/fused_check.h"

namespace gluon::fused_check {

Tally& tally() {
  static Tally tally;
  return tally;
}

std::vector<double> numeric_gradient(const std::function<std::vector<double>(const std::vector<double>&)>& f,
                                     std::vector<double> x, const std::vector<double>& weights) {
  const auto value = [&] {
    const std::vector<double> y = f(x);
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += weights[i] * y[i];
    return sum;
  };
  std::vector<double> gradient;
  for (double& entry : x) {
    const double kept = entry, h = 1e-5 * std::fmax(std::abs(kept), 0.1);
    entry = kept + h;
    const double above = value();
    entry = kept - h;
    const double below = value();
    entry = kept;
    gradient.push_back((above - below) / (2 * h));
  }
  return gradient;
}

namespace {

void check(const char* name, void (*body)()) {
  const Tally before = tally();
  body();
  std::printf("%-16s %6d checks, %d failed\n", name, tally().checks - before.checks,
              tally().failures - before.failures);
  std::fflush(stdout);
}

void check_everything() {
  check("momentum", check_momentum);
  check("updates", check_updates);
  check("rms_norm", check_rms_norm);
  check("qk_rotary", check_qk_rotary);
  check("mlp", check_mlp);
  check("cross_entropy", check_cross_entropy);
  check("embedding", check_embedding_gradient);
  check("graph", check_graph);
}

}  // namespace
}  // namespace gluon::fused_check

int main(int count, char** arguments) {
  using namespace gluon::fused_check;
  const std::string what = count > 1 ? arguments[1] : "";
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("fused_check: no CUDA device, nothing was checked\n");
    return 77;
  }
  if (what != "speed") check_everything();
  if (what != "check") measure_speed();
  std::printf("%d checks, %d failed\n", tally().checks, tally().failures);
  return tally().failures == 0 ? 0 : 1;
}
