#include "lab/train/config_fields.h"
#include "tests/fuzz/fuzz_targets.h"
#include "tests/fuzz/scratch.h"

void gluon::fuzz::config(std::string_view bytes) {
  lab::TrainConfig config;
  lab::parse_config_toml(std::string(bytes), "config.toml", config);
  // What was read can be written, and reads the same.
  const std::string text = lab::config_toml(config);
  lab::TrainConfig again;
  lab::parse_config_toml(text, "config.toml", again);
  require(lab::config_toml(again) == text);
  config.validate();
  for (const int64_t step : {int64_t{0}, config.steps / 2, config.steps - 1}) {
    require(config.resolved_schedule().multiplier(step) >= 0);
  }
}
