// facts.json of a run: what the report shows beside the config.
//
//   {"version": "0.1.0", "machine": "AMD EPYC ...", "threads": 2, "device": "cpu", "precision": "float32",
//    "data": "...", "routing": "group   norm ..."}

#pragma once

#include <string>

namespace gluon::lab {

struct RunFacts {
  std::string device;     // "cpu" or "cuda"
  std::string precision;  // of losses
  std::string data;       // Dataset::describe()
  std::string routing;    // Optimizer::routing_report()
};

/// The JSON text, with the version, this machine's processor and the number of threads.
std::string facts_json(const RunFacts& facts);

}  // namespace gluon::lab
