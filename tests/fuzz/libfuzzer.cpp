// What libFuzzer calls, for the target GLUON_FUZZ_TARGET.

#include <ATen/Parallel.h>

#include <cstddef>
#include <cstdint>

#include "gluon/core/check.h"
#include "tests/fuzz/fuzz_targets.h"

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  at::set_num_threads(1);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  try {
    gluon::fuzz::GLUON_FUZZ_TARGET({reinterpret_cast<const char*>(data), size});
  } catch (const gluon::InputError&) {
  }
  return 0;
}
