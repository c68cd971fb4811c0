#include <setjmp.h>
#include <ucontext.h>

#include <cstdlib>
#include <utility>
#include <vector>

#include "tests/kernels/emulation/emulated_cuda.h"

namespace gluon::emulated {
namespace {

constexpr std::size_t kStack = 256 << 10, kAlignment = 256;

struct Fiber {
  std::vector<char> stack = std::vector<char>(kStack);
  jmp_buf place;
  bool started = false, ended = false;
  int block_barriers = 0, warp_barriers = 0;  // passed or waited at
  double slot = 0;
};

std::vector<Fiber> fibers;  // each serves block after block
jmp_buf scheduler;
std::size_t current = 0;
std::function<void()> work;

// A graph is the launches between the begin and the end of a capture.
using Graph = std::vector<std::function<void()>>;
Graph* capturing = nullptr;

// A context switch by swapcontext() would ask the system for the signal mask each time.
void leave() {
  if (_setjmp(fibers[current].place) == 0) _longjmp(scheduler, 1);
}

void serve() {
  for (;;) {
    work();
    fibers[current].ended = true;
    leave();
  }
}

void enter() {
  Fiber& fiber = fibers[current];
  if (_setjmp(scheduler) != 0) return;
  if (std::exchange(fiber.started, true)) _longjmp(fiber.place, 1);
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = fiber.stack.data();
  context.uc_stack.ss_size = fiber.stack.size();
  makecontext(&context, serve, 0);
  setcontext(&context);
}

void wait(int Fiber::*barriers, std::size_t first, std::size_t end) {
  const int mine = ++(fibers[current].*barriers);
  const auto arrived = [&](const Fiber& fiber) { return fiber.ended || fiber.*barriers >= mine; };
  while (!std::all_of(fibers.begin() + first, fibers.begin() + end, arrived)) {
    leave();
  }
}

void run_block() {
  for (Fiber& fiber : fibers) {
    fiber.ended = false;
    fiber.block_barriers = fiber.warp_barriers = 0;
  }
  for (std::size_t running = fibers.size(); running > 0;) {
    running = 0;
    for (current = 0; current < fibers.size(); ++current) {
      if (fibers[current].ended) continue;
      thread.x = static_cast<unsigned>(current);
      enter();
      if (!fibers[current].ended) ++running;
    }
  }
}

}  // namespace

void sync_block() { wait(&Fiber::block_barriers, 0, fibers.size()); }

void sync_warp() {
  const std::size_t first = current / 32 * 32;
  wait(&Fiber::warp_barriers, first, std::min(first + 32, fibers.size()));
}

void* slot_of(unsigned lane) { return &fibers[current / 32 * 32 + lane].slot; }

void run(dim3 blocks, dim3 threads, cudaStream_t /*stream*/, std::function<void()> body) {
  if (capturing != nullptr) {
    capturing->push_back([=] { run(blocks, threads, nullptr, body); });
    return;
  }
  grid = blocks;
  fibers.resize(threads.x);
  work = std::move(body);
  for (block.x = 0; block.x < blocks.x; ++block.x) run_block();
}

}  // namespace gluon::emulated

// The parts of CUDA's runtime that kernel_check uses. Everything has happened when a function returns.
using gluon::emulated::capturing;
using gluon::emulated::Graph;

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  using gluon::emulated::kAlignment;
  *memory = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  return *memory == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMemset(void* memory, int value, std::size_t bytes) {
  std::memset(memory, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind /*kind*/) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t error) { return error == cudaSuccess ? "no error" : "invalid value"; }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned /*flags*/) {
  *stream = nullptr;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t /*stream*/) { return cudaSuccess; }
cudaError_t cudaStreamBeginCapture(cudaStream_t /*stream*/, cudaStreamCaptureMode /*mode*/) {
  capturing = new Graph;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t /*stream*/, cudaGraph_t* graph) {
  *graph = reinterpret_cast<cudaGraph_t>(std::exchange(capturing, nullptr));
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long /*flags*/) {
  *executable = reinterpret_cast<cudaGraphExec_t>(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t /*stream*/) {
  for (const auto& launch : *reinterpret_cast<Graph*>(executable)) launch();
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t /*executable*/) { return cudaSuccess; }
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete reinterpret_cast<Graph*>(graph);
  return cudaSuccess;
}
