// fuzz_replay CORPUS [TARGET]: runs every file of CORPUS/TARGET/ through its target, without libFuzzer. What escapes a
// target ends the program, after the name of the file.

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "gluon/core/check.h"
#include "tests/fuzz/fuzz_targets.h"

namespace {

namespace fs = std::filesystem;
using namespace gluon;

constexpr std::pair<const char*, void (*)(std::string_view)> kTargets[] = {
    {"token_shard", fuzz::token_shard}, {"cifar10", fuzz::cifar10},     {"safetensors", fuzz::safetensors},
    {"checkpoint", fuzz::checkpoint},   {"config", fuzz::config},       {"trajectory", fuzz::trajectory},
    {"paper_log", fuzz::paper_log},     {"tokenizer", fuzz::tokenizer}, {"xz", fuzz::xz},
    {"expressions", fuzz::expressions}, {"watch", fuzz::watch},
};

std::string bytes_of(const fs::path& path) {
  std::ostringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  return bytes.str();
}

// Returns the number of files.
int replay(const fs::path& folder, void (*target)(std::string_view)) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  int refused = 0;
  for (const fs::path& file : files) {
    std::fprintf(stderr, "%s\n", file.c_str());
    try {
      target(bytes_of(file));
    } catch (const InputError& error) {
      ++refused;
    }
  }
  std::printf("%-12s %3zu files, %3d refused\n", folder.filename().c_str(), files.size(), refused);
  return static_cast<int>(files.size());
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  for (const auto& [name, target] : kTargets) {
    if (argc > 2 && std::string_view(argv[2]) != name) continue;
    if (replay(fs::path(argv[1]) / name, target) == 0) {
      std::fprintf(stderr, "fuzz_replay: no files for %s\n", name);
      return 1;
    }
  }
  return 0;
}
