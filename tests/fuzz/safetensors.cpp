#include "gluon/checkpoint/safetensors.h"

#include <ATen/ATen.h>

#include "tests/fuzz/fuzz_targets.h"
#include "tests/fuzz/scratch.h"

void gluon::fuzz::safetensors(std::string_view bytes) {
  static const Scratch scratch("safetensors");
  const TensorFile file = read_safetensors(scratch.write("in.safetensors", bytes));
  // What was read can be written, and reads the same.
  write_safetensors(scratch.folder() / "out.safetensors", file);
  const TensorFile again = read_safetensors(scratch.folder() / "out.safetensors");
  require(again.verified && again.metadata == file.metadata && again.tensors.size() == file.tensors.size());
  for (const auto& [name, tensor] : file.tensors) {
    const at::Tensor& copy = again.tensors.at(name);
    require(copy.sizes() == tensor.sizes() && copy.scalar_type() == tensor.scalar_type());
  }
}
