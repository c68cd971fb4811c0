// What the program prints is text: names of files and layers may hold characters that a terminal obeys.

#pragma once

#include <memory>
#include <ostream>
#include <streambuf>
#include <vector>

namespace gluon::cli {

/// During its life std::cout, std::cerr and std::clog print everything but line breaks and tabs through printable().
class TextOutput {
 public:
  TextOutput();
  TextOutput(const TextOutput&) = delete;
  TextOutput& operator=(const TextOutput&) = delete;
  ~TextOutput();

 private:
  std::vector<std::unique_ptr<std::streambuf>> buffers_;
};

/// The standard output as it is, for a progress line that moves the cursor and for text meant for another program.
std::ostream& raw_output();

}  // namespace gluon::cli
