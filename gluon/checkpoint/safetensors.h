// safetensors files: named tensors and text, readable by the Python library of that name.
//
//   8 bytes   length of the header, little endian
//   header    JSON: {"__metadata__": {text: text}, name: {"dtype": "F32", "shape": [..], "data_offsets": [b, e]}, ...}
//   data      the tensors' bytes, row-major, in order of offset, without gaps
//
// The metadata entry "checksum" is "crc32:" and eight hex digits: the CRC-32 of the whole file with these digits as
// zeros. Reading checks it; a file without one, by another program, is read unchecked.
//
// Writing is atomic: a temporary file in the same folder, fsync, rename, fsync of the folder. A full disk or a kill
// leaves the old file as it was. Tensors are written one after another, widest dtype first so that each is aligned;
// only one that is strided or on a device is copied, one at a time.

#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <string>

namespace gluon {

struct TensorFile {
  std::map<std::string, at::Tensor> tensors;    // CPU, contiguous after reading
  std::map<std::string, std::string> metadata;  // without the checksum
  bool verified = false;                        // set by reading: there was a checksum, and it fits
};

/// Writes `file` to `path`. Throws InputError with the path and the system's reason when it cannot.
void write_safetensors(const std::filesystem::path& path, const TensorFile& file);

/// Reads a file written by anyone. Throws InputError with the path and what is wrong: missing, truncated, not a
/// safetensors file, overlapping offsets, unknown dtype, checksum that does not fit.
TensorFile read_safetensors(const std::filesystem::path& path);

}  // namespace gluon
