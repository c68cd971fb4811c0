#include "lab/train/error_text.h"

#include <c10/util/Exception.h>

#include <filesystem>
#include <new>

#include "gluon/core/check.h"
#include "gluon/distributed/collective.h"

namespace gluon::lab {

std::string user_error(const std::exception& error) {
  const std::string text = error.what(), first = text.substr(0, text.find('\n'));
  if (dynamic_cast<const InputError*>(&error) != nullptr) return text;
  if (dynamic_cast<const std::filesystem::filesystem_error*>(&error) != nullptr) return text;
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return "out of memory";
  if (const auto* gpu = dynamic_cast<const c10::OutOfMemoryError*>(&error)) {
    const std::string what = gpu->what_without_backtrace();
    return "out of GPU memory: " + what.substr(0, what.find('\n'));
  }
  const std::size_t memory = first.find("can't allocate memory");  // LibTorch has no type for it
  return memory == std::string::npos ? "" : "out of memory: " + first.substr(memory);
}

std::string error_text(const std::exception& error) {
  if (dynamic_cast<const RankLost*>(&error) != nullptr) return error.what();
  const std::string for_user = user_error(error);
  if (!for_user.empty()) return for_user;
  // The rest is a backtrace.
  const std::string text = error.what();
  return "internal error: " + text.substr(0, text.find('\n'));
}

}  // namespace gluon::lab
