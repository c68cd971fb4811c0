// Fuzz targets: one function per parser of what others wrote, each in the file of its name.
//
//   bytes -> a file or a text -> the parser -> what the program does with the result
//
// gluon::InputError is the parser's answer to bad input. Anything else that escapes, a sanitizer's report, and an
// abort() on a broken promise are findings. corpus/NAME/ holds small real files and the inputs of former findings.

#pragma once

#include <string_view>

namespace gluon::fuzz {

void token_shard(std::string_view bytes);
void cifar10(std::string_view bytes);
void safetensors(std::string_view bytes);
void checkpoint(std::string_view bytes);
void config(std::string_view bytes);
void trajectory(std::string_view bytes);
void paper_log(std::string_view bytes);
void tokenizer(std::string_view bytes);
void xz(std::string_view bytes);
void expressions(std::string_view bytes);
void watch(std::string_view bytes);

}  // namespace gluon::fuzz
