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
  struct Override {
    const char* name;
    std::optional<int64_t> given;
    int64_t NanoGptOptions::*option;
  };
  const Override table[] = {{"vocabulary", overrides.vocabulary, &NanoGptOptions::vocabulary},
                            {"context", overrides.context, &NanoGptOptions::context},
                            {"layers", overrides.layers, &NanoGptOptions::layers},
                            {"width", overrides.width, &NanoGptOptions::width},
                            {"heads", overrides.heads, &NanoGptOptions::heads}};
  if (is_language_model(name)) {
    NanoGptOptions options = nanogpt_options(name);
    for (const Override& entry : table) options.*entry.option = entry.given.value_or(options.*entry.option);
    options.qk_norm = overrides.qk_norm;
    return std::make_shared<NanoGpt>(options, seed);
  }
  for (const Override& entry : table) {
    GLUON_CHECK(!entry.given, "model ", name, ": has no ", entry.name, ", got ", *entry.given);
  }
  GLUON_CHECK(overrides.qk_norm, "model ", name, ": has no queries and keys to leave without norm");
  return std::make_shared<CifarCnn>(CifarCnnOptions{}, seed);
}

}  // namespace gluon::lab
