// Zoo: models by name.
//
//   nanogpt-124m   the paper's language model (nanogpt.h)
//   nanogpt-tiny   the same on bytes, for a CPU
//   cifar-cnn      the paper's image classifier (cifar_cnn.h)

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "lab/models/model.h"

namespace gluon::lab {

/// What replaces the named language model's own. cifar-cnn has none of these.
struct ModelOverrides {
  std::optional<int64_t> vocabulary, context, layers, width, heads;
  bool qk_norm = true;
};

/// Throws InputError that lists the names if `name` is none of them.
bool is_language_model(std::string_view name);

/// The model called `name`; the same seed gives the same parameters. Throws InputError on an unknown name, on an
/// override that the model does not have, and on sizes that do not fit each other.
std::shared_ptr<Model> make_model(std::string_view name, const ModelOverrides& overrides = {}, uint64_t seed = 0);

}  // namespace gluon::lab
