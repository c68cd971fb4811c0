#include "lab/train/memory.h"

#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>

#include "gluon/core/check.h"
#include "lab/models/nanogpt.h"

namespace gluon::lab {
namespace {

constexpr int64_t kMatricesPerBlock = 6, kSquaresPerBlock = 12;  // nanogpt.h: 4 of width^2, 2 of 4 width^2
constexpr double kBytesPerMatrix = 2048;  // at least: a module, a tensor, its gradient and its momentum
constexpr double kLargest = 9.2e18;       // below 2^63

// What a file holds as its only number; the largest there is where it has none, such as "max".
int64_t number_in(const char* path) {
  std::ifstream file(path);
  int64_t number = 0;
  return file >> number && number > 0 ? number : std::numeric_limits<int64_t>::max();
}

int64_t address_space_left() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::numeric_limits<int64_t>::max();
  const int64_t used = number_in("/proc/self/statm") * sysconf(_SC_PAGESIZE);  // its first number: pages in use
  return std::max<int64_t>(0, static_cast<int64_t>(limit.rlim_cur) - used);
}

}  // namespace

int64_t needed_memory(const TrainConfig& config, int64_t vocabulary, bool trains) {
  const NanoGptOptions standard = nanogpt_options(config.model);
  const auto layers = static_cast<double>(config.layers > 0 ? config.layers : standard.layers);
  const auto width = static_cast<double>(config.width > 0 ? config.width : standard.width);
  const double entries = static_cast<double>(vocabulary) * width + kSquaresPerBlock * layers * width * width;
  // On a GPU this machine only holds the parameters while they are initialised.
  const int copies = config.on_gpu() ? 1 : 2 + (config.preset == "adamw" ? 1 : 0) + (trains ? 1 : 0);
  const double bytes = 4 * copies * entries + kBytesPerMatrix * kMatricesPerBlock * layers;
  return static_cast<int64_t>(std::min(bytes, kLargest));
}

int64_t available_memory() {
  int64_t bytes = std::numeric_limits<int64_t>::max();
  struct sysinfo machine {};
  if (sysinfo(&machine) == 0) {
    bytes = static_cast<int64_t>(machine.mem_unit) * static_cast<int64_t>(machine.totalram + machine.totalswap);
  }
  for (const char* limit : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    bytes = std::min(bytes, number_in(limit));
  }
  return std::min(bytes, address_space_left());
}

void check_memory(const TrainConfig& config, int64_t vocabulary, bool trains) {
  const int64_t needed = needed_memory(config, vocabulary, trains), available = available_memory();
  GLUON_CHECK(needed <= available, "the model and its optimizer need at least ", needed,
              " bytes of memory, available are ", available, "; choose a smaller --layers, --width or --vocabulary");
}

}  // namespace gluon::lab
