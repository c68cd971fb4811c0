// What is this file? One look at its bytes, for people.
//
//   token shard       tokens and the largest of them
//   CIFAR-10 batch    images and how many of each label
//   safetensors       its tensors, from the JSON header: 8 bytes of length (little-endian), then the JSON
//   text              bytes, lines, whether it is UTF-8
//   anything else     its first bytes
//
// The contents decide, not the name; only .xz is believed, and looked into.

#pragma once

#include <filesystem>
#include <string>

namespace gluon::lab {

/// One or more lines without a final newline, the first beginning with the kind. Throws InputError when the file
/// cannot be read, or is of a known kind but truncated or corrupt.
std::string inspect_file(const std::filesystem::path& path);

}  // namespace gluon::lab
