#include "lab/train/experiment.h"

#include <memory>
#include <optional>

#include "gluon/core/check.h"
#include "lab/data/cifar10.h"
#include "lab/data/input_file.h"
#include "lab/data/token_dataset.h"
#include "lab/data/tokenizer.h"
#include "lab/models/cifar_cnn.h"
#include "lab/models/nanogpt.h"
#include "lab/models/zoo.h"
#include "lab/train/memory.h"

namespace gluon::lab {
namespace {

constexpr int64_t kWhiteningImages = 5000;  // as airbench
constexpr int64_t kTranslate = 2;           // pixels, as airbench

std::optional<int64_t> given(int64_t value) { return value > 0 ? std::optional(value) : std::nullopt; }

std::shared_ptr<const Cifar10> make_cifar(const TrainConfig& config) {
  GLUON_CHECK(!config.data.empty(), "--model ", config.model, " needs the folder of CIFAR-10: --data DIR");
  // Full-batch training is deterministic, so it does not augment.
  return std::make_shared<Cifar10>(config.data, CifarOptions{.seed = config.seed,
                                                             .train_images = config.train_images,
                                                             .test_images = config.test_images,
                                                             .flip = !config.full_batch,
                                                             .translate = config.full_batch ? 0 : kTranslate});
}

std::shared_ptr<const TokenDataset> make_tokens(const TrainConfig& config) {
  TokenOptions options{.context = config.seq > 0 ? config.seq : nanogpt_options(config.model).context,
                       .seed = config.seed,
                       .validation = config.val_data,
                       .validation_tokens = config.val_tokens};
  std::optional<Tokenizer> tokenizer;
  if (!config.vocab.empty()) tokenizer.emplace(config.vocab);
  const Tokenizer* encoder = tokenizer ? &*tokenizer : nullptr;
  const auto tokens = std::make_shared<TokenDataset>(
      config.data.empty() ? TokenDataset::from_text(default_text(), "the project's own sources", options, encoder)
                          : TokenDataset::from_files(config.data, options, encoder));
  GLUON_CHECK(config.vocabulary == 0 || tokens->classes() <= config.vocabulary, "data '",
              tokens->source_of_largest_token(), "' needs a vocabulary of ", tokens->classes(), ", the model has ",
              config.vocabulary);
  return tokens;
}

}  // namespace

std::shared_ptr<const Dataset> make_dataset(const TrainConfig& config) {
  if (is_language_model(config.model)) return make_tokens(config);
  return make_cifar(config);
}

Experiment make_experiment(const TrainConfig& config, bool trains) {
  if (!is_language_model(config.model)) {
    const auto images = make_cifar(config);
    const auto model = std::dynamic_pointer_cast<CifarCnn>(make_model(config.model, {}, config.seed));
    model->set_whitening(images->train_images(std::min(kWhiteningImages, images->train_examples())));
    return {model, images, 0};
  }
  TrainConfig resolved = config;
  if (config.vocabulary == 0 && config.model != "nanogpt-tiny") {
    resolved.vocabulary = nanogpt_options(config.model).vocabulary;
  }
  const auto tokens = make_tokens(resolved);
  if (resolved.vocabulary == 0) resolved.vocabulary = tokens->classes();
  check_memory(config, resolved.vocabulary, trains);
  const ModelOverrides overrides{.vocabulary = resolved.vocabulary,
                                 .context = given(config.seq),
                                 .layers = given(config.layers),
                                 .width = given(config.width),
                                 .heads = given(config.heads),
                                 .qk_norm = config.qk_norm};
  return {make_model(config.model, overrides, config.seed), tokens, resolved.vocabulary};
}

}  // namespace gluon::lab
