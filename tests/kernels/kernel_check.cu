#include "tests/kernels/kernel_check.h"

namespace gluon::kernel_check {
namespace {

struct Tally {
  int checks = 0, failures = 0;
};

Tally& tally() {
  static Tally tally;
  return tally;
}

}  // namespace

void expect(bool holds, const std::string& what) {
  ++tally().checks;
  if (holds) return;
  ++tally().failures;
  std::printf("FAILED %s\n", what.c_str());
}

void expect_capturable(const std::function<void()>& restore, const std::function<void(cudaStream_t)>& launch,
                       const std::function<Bits()>& bits) {
  cudaStream_t stream = nullptr;
  require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  restore();
  require(cudaDeviceSynchronize());
  launch(stream);
  const Bits plain = bits();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  launch(stream);
  require(cudaStreamEndCapture(stream, &graph));
  require(cudaGraphInstantiate(&executable, graph, 0));
  for (int i = 0; i < 2; ++i) {
    restore();
    require(cudaDeviceSynchronize());
    require(cudaGraphLaunch(executable, stream));
    expect(plain == bits(), join("graph: replay ", i, " differs from plain launches"));
  }
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

int run_program(int count, char** arguments, const std::vector<Check>& checks, void (*measure_speed)()) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::string what = count > 1 ? arguments[1] : "";
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("%s: no CUDA device, nothing was checked\n", arguments[0]);
    return 77;
  }
  for (const Check& check : checks) {
    if (what == "speed") break;
    const Tally before = tally();
    check.run();
    std::printf("%-16s %6d checks, %d failed\n", check.name, tally().checks - before.checks,
                tally().failures - before.failures);
  }
  if (measure_speed != nullptr && (what.empty() || what == "speed")) measure_speed();
  std::printf("%d checks, %d failed\n", tally().checks, tally().failures);
  return tally().failures == 0 ? 0 : 1;
}

}  // namespace gluon::kernel_check
