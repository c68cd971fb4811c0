// two_streams_check [steps]: chains of products on two streams at once, as two optimizers put them there, beside a
// third stream whose blocks take multiprocessors away for changing times. Each step must end, and give the bits that
// its chain gives alone.
//
// The blocks of a chain wait for each other. A launch that starts only a part of them while another launch, here of a
// higher priority, takes the rest hangs for good; the check then prints FAILED and ends the program.

#include <chrono>
#include <thread>

#include "gluon/kernels/cuda/symmetric_product.h"
#include "tests/kernels/kernel_check.h"

namespace gluon::kernel_check {
namespace {

using namespace gluon::cuda;

constexpr std::chrono::seconds kMostPerStep{20};
constexpr int kStepsAhead = 4;  // of the host
constexpr int kBusyBytes = 120 << 10;

int steps = 1000;

// Holds a multiprocessor: a block of a product does not fit beside this one's shared memory.
__global__ void hold(long long nanoseconds) {
  long long begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do {
    __nanosleep(500);
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - begin < nanoseconds);
}

// Counts the words in which two buffers differ.
__global__ void count_differences(const unsigned* a, const unsigned* b, int64_t words,
                                  unsigned long long* differences) {
  unsigned long long mine = 0;
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < words; i += int64_t{gridDim.x} * blockDim.x) {
    mine += a[i] != b[i];
  }
  if (mine > 0) atomicAdd(differences, mine);
}

// R = X X^T / n,  Z = R R + R / 2,  H = Z R,  Y = H X of `count` matrices (m, n), in a stream of its own.
class Chain {
 public:
  Chain(int count, int m, int n, int priority)
      : square_size_(int64_t(count) * m * m),
        x_(values(int64_t(count) * m * n, unsigned(n))),
        buffers_(3 * square_size_ + x_.size()),
        expected_(buffers_.size()),
        products_(products(count, m, n)),
        progress_(product_progress(products_)) {
    require(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, priority));
    for (cudaEvent_t& event : done_) require(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    run_alone();
    capture();
  }
  ~Chain() {
    cudaGraphExecDestroy(graph_);
    for (cudaEvent_t event : done_) cudaEventDestroy(event);
    cudaStreamDestroy(stream_);
  }

  // Computes everything anew and compares it, in every second step as a graph.
  void launch(int step) {
    if (step % 2 == 0) {
      enqueue();
    } else {
      require(cudaGraphLaunch(graph_, stream_));
    }
    require(cudaEventRecord(done_[step % kStepsAhead], stream_));
  }

  bool has_ended(int step) const {
    const cudaError_t state = cudaEventQuery(done_[step % kStepsAhead]);
    if (state != cudaErrorNotReady) require(state);
    return state == cudaSuccess;
  }

  unsigned long long differences() const { return differences_.get()[0]; }

 private:
  static std::vector<__half> values(int64_t count, unsigned seed) {
    std::mt19937_64 random(seed);
    return random_values<__half>(count, 1, random);
  }

  std::vector<Product> products(int count, int m, int n) const {
    const auto square = [&](int i) { return HalfStack{buffers_.data() + i * square_size_, m, int64_t(m) * m}; };
    const auto wide = [&](__half* data) { return HalfStack{data, n, int64_t(m) * n}; };
    Product gram{.kind = ProductKind::kRowGram, .count = count, .rows = m, .columns = n, .alpha = 1.0F / float(n)};
    gram.a = wide(x_.data()), gram.c = square(0);
    Product polynomial{.kind = ProductKind::kSymmetric, .count = count, .rows = m, .beta = 0.5F};
    polynomial.a = polynomial.b = polynomial.d = square(0), polynomial.c = square(1);
    Product higher{.kind = ProductKind::kSymmetric, .count = count, .rows = m};
    higher.a = square(1), higher.b = square(0), higher.c = square(2);
    Product left{.kind = ProductKind::kLeft, .count = count, .rows = m, .columns = n};
    left.a = square(2), left.b = wide(x_.data()), left.c = wide(buffers_.data() + 3 * square_size_);
    return {gram, polynomial, higher, left};
  }

  void multiply() {
    require(cudaMemsetAsync(buffers_.data(), 0xff, buffers_.size() * sizeof(__half), stream_));
    require(launch_products(products_, progress_.data(), stream_));
  }

  void enqueue() {
    multiply();
    count_differences<<<256, 256, 0, stream_>>>(reinterpret_cast<const unsigned*>(buffers_.data()),
                                                reinterpret_cast<const unsigned*>(expected_.data()),
                                                int64_t(buffers_.size()) / 2, differences_.data());
    require(cudaGetLastError());
  }

  void run_alone() {
    require(cudaDeviceSynchronize());  // the stream does not wait for copies
    multiply();
    require(cudaStreamSynchronize(stream_));
    const std::vector<__half> got = buffers_.get();
    expected_.set(got);
    double sum = 0;
    for (const __half value : got) sum += std::abs(to_double(value));
    expect(std::isfinite(sum) && sum > 0, "a chain alone gives finite numbers");
  }

  void capture() {
    cudaGraph_t captured = nullptr;
    require(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    enqueue();
    require(cudaStreamEndCapture(stream_, &captured));
    require(cudaGraphInstantiate(&graph_, captured, 0));
    cudaGraphDestroy(captured);
  }

  int64_t square_size_;
  Array<__half> x_, buffers_, expected_;  // R, Z, H and Y in `buffers_`
  Array<unsigned long long> differences_{std::vector<unsigned long long>(1)};
  std::vector<Product> products_;
  Array<int> progress_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t done_[kStepsAhead] = {};
  cudaGraphExec_t graph_ = nullptr;
};

// Without a call that waits for the device: it would hang, too.
void wait_for(const Chain& chain, int step, const char* which) {
  const auto start = std::chrono::steady_clock::now();
  while (!chain.has_ended(step)) {
    if (std::chrono::steady_clock::now() - start > kMostPerStep) {
      std::printf("FAILED step %d of the %s chain has not ended after %d s\n", step, which, int(kMostPerStep.count()));
      std::_Exit(1);
    }
    std::this_thread::yield();
  }
}

void check_two_streams() {
  int least = 0, greatest = 0, processors = 0;
  require(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  require(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
  require(cudaFuncSetAttribute(hold, cudaFuncAttributeMaxDynamicSharedMemorySize, kBusyBytes));
  cudaStream_t busy = nullptr;
  require(cudaStreamCreateWithFlags(&busy, cudaStreamNonBlocking));
  // More tiles than clusters, so that both want all multiprocessors.
  Chain first(24, 512, 1024, least), second(40, 384, 640, greatest);
  require(cudaDeviceSynchronize());
  std::mt19937_64 random(1);
  for (int step = 0; step < steps + kStepsAhead; ++step) {
    if (step >= kStepsAhead) {
      wait_for(first, step - kStepsAhead, "first");
      wait_for(second, step - kStepsAhead, "second");
    }
    if (step >= steps) continue;
    const auto blocks = static_cast<unsigned>(1 + random() % processors);
    hold<<<blocks, 32, kBusyBytes, busy>>>(static_cast<long long>(1000 + random() % 200000));
    require(cudaGetLastError());
    first.launch(step);
    second.launch(step);
  }
  expect(first.differences() == 0, join("first chain: ", first.differences(), " words differ from the chain alone"));
  expect(second.differences() == 0, join("second chain: ", second.differences(), " words differ from the chain alone"));
  cudaStreamDestroy(busy);
}

}  // namespace
}  // namespace gluon::kernel_check

int main(int count, char** arguments) {
  using namespace gluon::kernel_check;
  if (count > 1) steps = std::atoi(arguments[1]);
  return run_program(arguments[0], {{"two streams", check_two_streams}});
}
