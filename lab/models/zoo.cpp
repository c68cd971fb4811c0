#include "lab/models/zoo.h"

#include "gluon/core/check.h"
#include "lab/models/cifar_cnn.h"
#include "lab/models/nanogpt.h"

namespace gluon::lab {

bool is_language_model(std::string_view name) {
  if (name == "nanogpt-124m" || name == "nanogpt-tiny") return true;
  GLUON_CHECK(name == "cifar-cnn", "model: unknown name '", name,
              "'; allowed are nanogpt-124m, nanogpt-tiny, cifar-cnn");
  return false;
}

std::shared_ptr<Model> make_model(std::string_view name, const ModelOverrides& overrides, uint64_t seed) {
  if (is_language_model(name)) {
    NanoGptOptions options = nanogpt_options(name);
    options.vocabulary = overrides.vocabulary.value_or(options.vocabulary);
    options.context = overrides.context.value_or(options.context);
    options.layers = overrides.layers.value_or(options.layers);
    options.width = overrides.width.value_or(options.width);
    options.heads = overrides.heads.value_or(options.heads);
    return std::make_shared<NanoGpt>(options, seed);
  }
  const auto refuse = [&](const char* option, const std::optional<int64_t>& value) {
    GLUON_CHECK(!value, "model ", name, ": has no ", option, ", got ", *value);
  };
  refuse("vocabulary", overrides.vocabulary);
  refuse("context", overrides.context);
  refuse("layers", overrides.layers);
  refuse("width", overrides.width);
  refuse("heads", overrides.heads);
  return std::make_shared<CifarCnn>(CifarCnnOptions{}, seed);
}

}  // namespace gluon::lab
