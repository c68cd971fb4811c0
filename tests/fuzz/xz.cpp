#include "lab/data/input_file.h"
#include "tests/fuzz/fuzz_targets.h"

void gluon::fuzz::xz(std::string_view bytes) {
  constexpr uint64_t kMost = uint64_t{1} << 26;
  (void)lab::unpacked_xz(bytes, "input.xz", kMost);
}
