#include "cli/train_options.h"

#include "cli/whole_numbers.h"
#include "gluon/core/check.h"
#include "lab/train/run_directory.h"

namespace gluon::cli {

void add_train_options(CLI::App& command, lab::TrainConfig& config) {
  const auto option = [&](const char* name, auto& field, const char* text) {
    return command.add_option(name, field, text)->capture_default_str();
  };
  option("--model", config.model, "nanogpt-tiny, nanogpt-124m or cifar-cnn")->group("Model");
  option("--layers", config.layers, "Transformer blocks (0: the model's own)")->group("Model");
  option("--width", config.width, "Width (0: the model's own)")->group("Model");
  option("--heads", config.heads, "Attention heads (0: the model's own)")->group("Model");
  option("--seq", config.seq, "Context in tokens (0: the model's own)")->group("Model");
  option("--vocabulary", config.vocabulary, "Tokens the model knows (0: its own; nanogpt-tiny: the data's)")
      ->group("Model");
  option("--data", config.data, "Token shards, text, or the folder of CIFAR-10 (empty: our own sources)")
      ->group("Data");
  option("--vocab", config.vocab, "Folder with encoder.json and vocab.bpe for text (empty: bytes)")
      ->group("Data");
  option("--train-images", config.train_images, "Only the first so many images (0: all)")->group("Data");
  option("--test-images", config.test_images, "Only the first so many test images (0: all)")->group("Data");
  option("--batch", config.batch, "Examples per batch")->group("Data");
  option("--accumulate", config.accumulate, "Batches per step")->group("Data");
  command.add_flag("--full-batch", config.full_batch, "One step = the whole training set")
      ->default_str(config.full_batch ? "true" : "false")
      ->group("Data");
  option("--parts", config.parts,
         "Parts of a batch that ranks share, added in float64 (1: one piece a rank; 0: 12 with ranks on "
         "the CPU)")
      ->group("Data");
  option("--preset", config.preset,
         "unscion, scion, muon, sign_descent, normalized_descent, deterministic_gluon or adamw")
      ->group("Optimizer");
  option("--radius", config.radius, "Radii by group: hidden=0.018,embedding=1.08")->group("Optimizer");
  option("--lr", config.lr, "AdamW's learning rate (0: the preset's own)")->group("Optimizer");
  option("--weight-decay", config.weight_decay, "Decoupled weight decay (below 0: the preset's own)")
      ->group("Optimizer");
  option("--momentum", config.momentum, "none, ema(B), nesterov(B) or theorem3 (empty: the preset's own)")
      ->group("Optimizer");
  option("--schedule", config.schedule, "Factor on the radii (empty: linear to 0 over the last 30 %)")
      ->group("Optimizer");
  option("--orthogonalizer", config.orthogonalizer, "Inside spectral norms (empty: the default)")
      ->group("Optimizer");
  option("--clip", config.clip, "Largest gradient norm under adamw (0: none)")->group("Optimizer");
  option("--label-smoothing", config.label_smoothing, "Below 0: 0.2 for the CNN, else 0")->group("Optimizer");
  option("--steps", config.steps, "Steps in all")->group("Run");
  option("--seed", config.seed, "Of weights, data order and augmentation")->group("Run");
  option("--device", config.device, "cpu or cuda")->group("Run");
  option("--precision", config.precision, "float32 or bfloat16 (empty: bfloat16 on a GPU, if the model can)")
      ->group("Run");
  option("--cuda-graph", config.cuda_graph, "Forward and backward pass as one CUDA graph, where it can be")
      ->group("Run");
  command
      .add_flag("--deterministic", config.deterministic,
                "The same bits in every run on a GPU, too, where LibTorch can (on the CPU they always are)")
      ->default_str(config.deterministic ? "true" : "false")
      ->group("Run");
  option("--eval-every", config.eval_every, "Steps between evaluations")->group("Run");
  option("--save-every", config.save_every, "Steps between checkpoints")->group("Run");
  option("--smoothness-every", config.smoothness_every, "Steps between samples of smoothness (0: none)")
      ->group("Smoothness");
  option("--smoothness-mode", config.smoothness_mode,
         "consecutive, full or same_batch (empty: full with --full-batch, else same_batch)")
      ->group("Smoothness");
  option("--smoothness-geometry", config.smoothness_geometry,
         "Preset whose norms measure (empty: the run's own, unscion's for AdamW)")
      ->group("Smoothness");
  option("--smoothness-dual", config.smoothness_dual,
         "Dual of spectral norms: exact, an orthogonalizer or auto (exact; polar_express:8 on a GPU)")
      ->group("Smoothness");
}

void read_config(CLI::App& command, const std::filesystem::path& path, const std::set<std::string>& ignored) {
  GLUON_CHECK(std::filesystem::exists(path), "config: no file ", path.string());
  GLUON_CHECK(!std::filesystem::is_directory(path), "config: ", path.string(), " is a folder, not a file");
  try {
    for (const CLI::ConfigItem& item : CLI::ConfigTOML().from_file(path.string())) {
      if (item.name == "++" || item.name == "--") continue;  // how CLI11 marks the sections
      if (ignored.count(item.fullname()) > 0) continue;
      CLI::Option* option = item.parents.empty() ? command.get_option_no_throw("--" + item.name) : nullptr;
      GLUON_CHECK(option != nullptr && option->get_configurable(), "config ", path.string(),
                  ": unknown key '", item.fullname(), "'");
      if (option->count() > 0) continue;  // a flag on the command line comes first
      option->add_result(item.inputs);
      option->run_callback();
    }
  } catch (const CLI::Error& error) {
    throw InputError(join("config ", path.string(), ": ", error.what()));
  }
}

std::string config_text(const lab::TrainConfig& config) {
  lab::TrainConfig copy = config;
  CLI::App options;
  add_train_options(options, copy);
  return options.config_to_str(/*default_also=*/true, /*write_description=*/false);
}

lab::TrainConfig config_of_run(const std::filesystem::path& run) {
  (void)lab::RunDirectory::open(run);
  lab::TrainConfig config;
  CLI::App options;
  add_train_options(options, config);
  check_whole_numbers(options);
  read_config(options, run / "config.toml");
  config.out = run.string();
  return config;
}

}  // namespace gluon::cli
