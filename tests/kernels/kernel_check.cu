#include "tests/kernels/kernel_check.h"

namespace gluon::kernel_check {
namespace {

int checks_made = 0, failures = 0;

}  // namespace

void expect(bool holds, const std::string& what) {
  ++checks_made;
  if (holds) return;
  ++failures;
  std::printf("FAILED %s\n", what.c_str());
}

void expect_capturable(const std::function<void()>& restore, const std::function<void(cudaStream_t)>& launch,
                       const std::function<Bits()>& bits, int replays) {
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
  for (int i = 0; i < replays; ++i) {
    restore();
    require(cudaDeviceSynchronize());
    require(cudaGraphLaunch(executable, stream));
    expect(plain == bits(), join("graph: replay ", i, " differs from plain launches"));
  }
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

double largest(const Vector& values) {
  double most = 0;
  for (const double value : values) most = std::fmax(most, std::abs(value));
  return most;
}

void expect_close(const Vector& got, const Vector& want, double relative, double absolute, const std::string& what) {
  size_t bad = 0, worst = 0;
  double excess = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(want[i])) continue;
    const double over = std::abs(got[i] - want[i]) - (relative * std::abs(want[i]) + absolute);
    if (over <= 0 || got[i] == want[i]) continue;
    if (bad++ == 0 || over > excess) worst = i, excess = over;
  }
  expect(got.size() == want.size(), what + ": size");
  expect(bad == 0, bad == 0 ? what
                            : join(what, ": ", bad, " of ", want.size(), " entries, worst ", worst, ": got ",
                                   got[worst], ", expected ", want[worst]));
}

int run_program(const char* program, const std::vector<Check>& checks) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("%s: no CUDA device, nothing was checked\n", program);
    return 77;
  }
  for (const Check& check : checks) {
    const int made_before = checks_made, failures_before = failures;
    check.run();
    std::printf("%-16s %6d checks, %d failed\n", check.name, checks_made - made_before, failures - failures_before);
  }
  std::printf("%d checks, %d failed\n", checks_made, failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace gluon::kernel_check
