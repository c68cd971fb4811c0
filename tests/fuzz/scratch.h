// The folder of a fuzzing process: parsers read files, so each input is written to memory-backed storage first.

#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace gluon::fuzz {

/// Aborts unless a promise of the code under test holds.
inline void require(bool holds) {
  if (!holds) std::abort();
}

class Scratch {
 public:
  explicit Scratch(const std::string& target) {
    const std::filesystem::path memory = "/dev/shm";
    const bool usable = access(memory.c_str(), W_OK) == 0;
    folder_ = (usable ? memory : std::filesystem::temp_directory_path()) /
              ("gluon-fuzz-" + target + "-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
  }
  ~Scratch() {
    std::error_code ignored;
    for (std::filesystem::directory_iterator entry(folder_, ignored), end; entry != end; entry.increment(ignored)) {
      std::filesystem::remove(entry->path(), ignored);
    }
    std::filesystem::remove(folder_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const std::filesystem::path& folder() const { return folder_; }

  std::filesystem::path write(const std::string& name, std::string_view bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return folder_ / name;
  }

 private:
  std::filesystem::path folder_;
};

}  // namespace gluon::fuzz
