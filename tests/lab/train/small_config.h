// A language model that trains in milliseconds.

#pragma once

#include <string>

#include "lab/train/config.h"

namespace gluon::lab {

inline TrainConfig small_config(const std::string& preset = "unscion") {
  TrainConfig config;
  config.preset = preset;
  config.layers = 1;
  config.width = 32;
  config.heads = 2;
  config.seq = 32;
  config.batch = 4;
  config.steps = 3;
  return config;
}

}  // namespace gluon::lab
