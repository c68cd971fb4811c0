#include "cli/out_of_memory.h"

#include <c10/util/Exception.h>

#include <new>

namespace gluon::cli {

std::string out_of_memory(const std::exception& error) {
  const std::string text = error.what(), first = text.substr(0, text.find('\n'));
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return "out of memory";
  if (const auto* gpu = dynamic_cast<const c10::OutOfMemoryError*>(&error)) {
    const std::string what = gpu->what_without_backtrace();
    return "out of GPU memory: " + what.substr(0, what.find('\n'));
  }
  const std::size_t memory = first.find("can't allocate memory");  // LibTorch has no type for it
  return memory == std::string::npos ? "" : "out of memory: " + first.substr(memory);
}

}  // namespace gluon::cli
