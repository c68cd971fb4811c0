#include "lab/train/run_facts.h"

#include <ATen/Parallel.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "gluon/version.h"

namespace gluon::lab {
namespace {

// "model name : ..." of Linux; empty elsewhere.
std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const auto at = line.find(": ");
    return at == std::string::npos ? "" : line.substr(at + 2);
  }
  return "";
}

}  // namespace

std::string facts_json(const RunFacts& facts) {
  const nlohmann::ordered_json json = {
      {"version", kVersion},     {"machine", processor()},       {"threads", at::get_num_threads()},
      {"device", facts.device},  {"precision", facts.precision}, {"data", facts.data},
      {"routing", facts.routing}};
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace gluon::lab
