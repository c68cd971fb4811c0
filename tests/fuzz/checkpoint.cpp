#include "gluon/checkpoint/checkpoint.h"

#include <ATen/ATen.h>
#include <zlib.h>

#include <cstdio>

#include "gluon/geometry/presets.h"
#include "gluon/update/optimizer.h"
#include "tests/fuzz/fuzz_targets.h"
#include "tests/fuzz/scratch.h"

namespace {

// The file with the checksum that belongs to its bytes: otherwise no changed file would get past it.
std::string with_checksum(std::string_view bytes) {
  constexpr std::string_view kMark = R"({"__metadata__":{"checksum":"crc32:)";
  constexpr std::size_t kLength = 8, kPlace = kLength + kMark.size(), kDigits = 8;
  std::string file(bytes);
  if (file.size() < kPlace + kDigits || file.compare(kLength, kMark.size(), kMark) != 0) return file;
  file.replace(kPlace, kDigits, kDigits, '0');
  char digits[kDigits + 1];
  const auto crc = crc32_z(0, reinterpret_cast<const Bytef*>(file.data()), file.size());
  std::snprintf(digits, sizeof digits, "%08x", static_cast<unsigned>(crc));
  return file.replace(kPlace, kDigits, digits);
}

// An InputError in here would not be the file's.
gluon::Optimizer make_optimizer() noexcept {
  return {{{.name = "w", .parameter = at::zeros({3, 2})},
           {.name = "b", .parameter = at::zeros({2}), .role = gluon::Role::kVector}},
          gluon::presets::muon()};  // momentum for w, AdamW for b
}

}  // namespace

void gluon::fuzz::checkpoint(std::string_view bytes) {
  static const Scratch scratch("checkpoint");
  static Optimizer optimizer = make_optimizer();
  scratch.write("step-00000004.safetensors", with_checksum(bytes));
  const Checkpoint checkpoint = load_checkpoint(scratch.folder()).checkpoint;
  require(checkpoint.version == Checkpoint::kVersion && checkpoint.step >= 0);
  optimizer.load_state(checkpoint.optimizer);
  restore_tensors(checkpoint.model, {{"w", at::zeros({3, 2})}, {"b", at::zeros({2})}});
}
