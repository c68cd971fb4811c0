#include "lab/train/config_fields.h"

#include <charconv>
#include <fstream>
#include <limits>
#include <sstream>
#include <string_view>
#include <type_traits>

#include "gluon/core/atomic_file.h"
#include "gluon/core/check.h"
#include "gluon/core/json.h"
#include "gluon/core/printable.h"
#include "gluon/core/spec.h"
#include "lab/train/radius_flag.h"
#include "lab/train/run_directory.h"

namespace gluon::lab {
namespace {

using C = TrainConfig;

const ConfigField kFields[] = {
    {"model", &C::model, "Model", "nanogpt-tiny, nanogpt-124m or cifar-cnn", "model"},
    {"layers", &C::layers, "Model", "Transformer blocks (0: the model's default)", "geometry"},
    {"width", &C::width, "Model", "Width (0: the model's default)", "geometry"},
    {"heads", &C::heads, "Model", "Attention heads (0: the model's default)", "heads"},
    {"seq", &C::seq, "Model", "Context length in tokens (0: the model's default)", "seq"},
    {"vocabulary", &C::vocabulary, "Model",
     "Vocabulary size (0: the model's default; for nanogpt-tiny that of the data)", "geometry"},
    {"qk-norm", &C::qk_norm, "Model", "Normalise queries and keys (0: their logits grow with the weights)", "qk-norm"},

    {"data", &C::data, "Data", "Token shards, text, or the CIFAR-10 folder (empty: Gluon's own sources)", "",
     /*local=*/true},
    {"vocab", &C::vocab, "Data", "Folder with encoder.json and vocab.bpe to tokenize text (empty: bytes)", "",
     /*local=*/true},
    {"val-data", &C::val_data, "Data", "Validation data, as --data (empty: the end of --data)", "", /*local=*/true},
    {"val-tokens", &C::val_tokens, "Data",
     "Tokens to validate on (0: all of --val-data; without it a tenth of --data, at most 64 windows)"},
    {"train-images", &C::train_images, "Data", "Use only the first N training images (0: all)"},
    {"test-images", &C::test_images, "Data", "Use only the first N test images (0: all)"},
    {"batch", &C::batch, "Data", "Examples per batch", "batch"},
    {"accumulate", &C::accumulate, "Data", "Batches per step", "batch"},
    {"full-batch", &C::full_batch, "Data", "Use the whole training set in every step", "full-batch"},
    {"parts", &C::parts, "Data",
     "Parts of a batch that ranks share, added in float64 (1: one piece per rank; 0: 12 with ranks on the "
     "CPU)"},

    {"preset", &C::preset, "Optimizer",
     "unscion, scion, sphere, muon, normuon, muonclip, sign_descent, normalized_descent, sgd, adamw or "
     "deterministic_gluon; muon(SCALE) and normuon(SCALE) with none, aspect (the default) or match_adam",
     "geometry"},
    {"radius", &C::radius, "Optimizer",
     "Radii by group: hidden=0.018,embedding=1.08; rules by role or layer: head=power(0.5),*.bias=smooth(0,3); auto: "
     "preset sphere and its law, from --steps",
     "geometry"},
    {"lr", &C::lr, "Optimizer", "Learning rate of AdamW (0: the preset's default)", "geometry"},
    {"weight-decay", &C::weight_decay, "Optimizer", "Decoupled weight decay (negative: the preset's default)",
     "geometry"},
    {"decay", &C::decay, "Optimizer",
     "Decay as a number, decoupled(W[,SCHEDULE]) or cautious(W[,SCHEDULE]) (empty: --weight-decay)", "geometry"},
    {"normalize", &C::normalize, "Optimizer",
     "Directions of spectral norms: none, normuon(B) or adamuon(B) (empty: the preset's default)", "geometry"},
    {"momentum", &C::momentum, "Optimizer", "none, ema(B), nesterov(B) or theorem3 (empty: the preset's default)",
     "momentum"},
    {"schedule", &C::schedule, "Optimizer",
     "Factor on the radii (empty: constant, then linear to 0 over the last 30 %, under preset sphere over all steps)"},
    {"orthogonalizer", &C::orthogonalizer, "Optimizer", "Used inside spectral norms (empty: the default)",
     "orthogonalizer"},
    {"clip", &C::clip, "Optimizer", "Largest gradient norm under AdamW (0: no clipping)", "clip"},
    {"qk-clip", &C::qk_clip, "Optimizer",
     "Largest attention logit, with --qk-norm 0 (0: none; negative: 100 under preset muonclip, else none)", "qk-clip"},
    {"label-smoothing", &C::label_smoothing, "Optimizer", "Label smoothing (negative: 0.2 for the CNN, 0 for language)",
     "label-smoothing"},

    {"steps", &C::steps, "Run", "Total number of steps"},
    {"seed", &C::seed, "Run", "Seed of the weights, the data order and the augmentation", "seed"},
    {"device", &C::device, "Run", "cpu, cuda or cuda:N"},
    {"precision", &C::precision, "Run", "float32 or bfloat16 (empty: bfloat16 on a GPU if the model supports it)"},
    {"cuda-graph", &C::cuda_graph, "Run", "Run the forward and backward pass as one CUDA graph where possible"},
    {"deterministic", &C::deterministic, "Run",
     "Reproduce the same bits on a GPU where LibTorch can (the CPU always does)"},
    {"eval-every", &C::eval_every, "Run", "Steps between evaluations"},
    {"save-every", &C::save_every, "Run", "Steps between checkpoints"},
    {"on-nan", &C::on_nan, "Run",
     "Gradients with NaN or Inf: error, skip (the batch) or rollback (to the last checkpoint, radii halved)"},
    {"nan-limit", &C::nan_limit, "Run", "Batches to skip in a row, or rollbacks of the run, before it is an error"},

    {"smoothness-every", &C::smoothness_every, "Smoothness", "Steps between smoothness samples (0: none)"},
    {"smoothness-start", &C::smoothness_start, "Smoothness",
     "First step at which a sample may begin; the authors' language run begins at 50, not at projections of zero"},
    {"smoothness-mode", &C::smoothness_mode, "Smoothness",
     "consecutive, full or same_batch (empty: full with --full-batch, otherwise same_batch)"},
    {"smoothness-geometry", &C::smoothness_geometry, "Smoothness",
     "Preset whose norms measure (empty: the run's preset; unscion for AdamW)"},
    {"smoothness-dual", &C::smoothness_dual, "Smoothness",
     "Dual of spectral norms: exact, an orthogonalizer, or auto (exact; polar_express:8 on a GPU)"},
};

// Six digits where they are exact, as in 100000 and 0.018, else as many as the value needs.
std::string double_text(double value) {
  const std::string brief = join(value);
  double parsed = 0;
  std::from_chars(brief.data(), brief.data() + brief.size(), parsed);
  return parsed == value ? brief : number_text(value);
}

// A switch that is on by default has always been written as 1 or 0, the others as true or false.
std::string switch_text(bool value, bool standard) {
  if (standard) return value ? "1" : "0";
  return value ? "true" : "false";
}

template <typename Integer> Integer parse_limited(const std::string& text, const std::string& origin) {
  using Limits = std::numeric_limits<Integer>;
  Integer value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  GLUON_CHECK(error == std::errc() && end == text.data() + text.size(), origin, ": expected a whole number in ",
              Limits::min(), "..", Limits::max(), ", got '", text, "'");
  return value;
}

bool parse_bool(const std::string& text, const std::string& origin) {
  GLUON_CHECK(text == "true" || text == "false" || text == "1" || text == "0", origin,
              ": expected true or false, got '", text, "'");
  return text == "true" || text == "1";
}

constexpr std::size_t kLargestFile = std::size_t{1} << 20;
constexpr const char* kBlank = " \t\r";

std::string_view trim(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

// A basic string of TOML has the escapes of JSON.
std::string quoted(const std::string& value, const char* key) {
  try {
    return nlohmann::json(value).dump();
  } catch (const nlohmann::json::type_error&) {
    throw InputError(join("--", key, ": expected text in UTF-8, got '", value, "'"));
  }
}

// The characters at the start of `text` up to the quote that ends its string, both quotes included.
std::string_view string_token(std::string_view text, const std::string& origin) {
  const char quote = text.front();
  std::size_t end = 1;
  while (end < text.size() && text[end] != quote) end += quote == '"' && text[end] == '\\' ? 2 : 1;
  GLUON_CHECK(end < text.size(), origin, ": the string ", text, " has no closing quote");
  return text.substr(0, end + 1);
}

std::string decoded(std::string_view token, const std::string& origin) {
  if (token.front() == '\'') return std::string(token.substr(1, token.size() - 2));
  try {
    return parse_json(token, origin);
  } catch (const InputError&) {
    throw InputError(join(origin, ": expected UTF-8 text with the escapes of TOML, got ", printable(token)));
  }
}

std::string parse_value(std::string_view text, const std::string& origin) {
  if (!text.starts_with('"') && !text.starts_with('\'')) {
    return std::string(trim(text.substr(0, text.find('#'))));
  }
  const std::string_view token = string_token(text, origin);
  const std::string_view rest = trim(text.substr(token.size()));
  GLUON_CHECK(rest.empty() || rest.starts_with('#'), origin, ": expected nothing after ", token, ", got ", rest);
  return decoded(token, origin);
}

const ConfigField& field_named(std::string_view key, const std::string& origin) {
  for (const ConfigField& field : config_fields()) {
    if (key == field.name) return field;
  }
  throw InputError(join(origin, ": unknown key '", key, "'"));
}

}  // namespace

std::span<const ConfigField> config_fields() { return kFields; }

std::string value_text(const TrainConfig& config, const ConfigField& field) {
  return std::visit(
      [&](auto member) -> std::string {
        const auto& value = config.*member;
        using Value = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<Value, std::string>) return value;
        if constexpr (std::is_same_v<Value, double>) return double_text(value);
        if constexpr (std::is_same_v<Value, bool>) return switch_text(value, TrainConfig{}.*member);
        return join(value);
      },
      field.member);
}

void set_value(TrainConfig& config, const ConfigField& field, const std::string& text, const std::string& origin) {
  std::visit(
      [&](auto member) {
        auto& value = config.*member;
        using Value = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<Value, std::string>) {
          value = text;
        } else if constexpr (std::is_same_v<Value, double>) {
          value = parse_number(text, origin);
        } else if constexpr (std::is_same_v<Value, bool>) {
          value = parse_bool(text, origin);
        } else {
          value = parse_limited<Value>(text, origin);
        }
      },
      field.member);
}

std::map<std::string, std::string> values_shared_by_ranks(const TrainConfig& config) {
  std::map<std::string, std::string> values;
  for (const ConfigField& field : config_fields()) {
    if (!field.local) values[field.name] = value_text(config, field);
  }
  return values;
}

std::string config_toml(const TrainConfig& config) {
  std::string text;
  for (const ConfigField& field : config_fields()) {
    std::string value = value_text(config, field);
    if (std::holds_alternative<std::string TrainConfig::*>(field.member)) value = quoted(value, field.name);
    text += join(field.name, "=", value, "\n");
  }
  return text;
}

void parse_config_toml(const std::string& text, const std::string& origin, TrainConfig& config,
                       const std::set<std::string>& keep) {
  std::istringstream lines(text);
  std::set<std::string> seen;
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    const std::string_view entry = trim(line);
    if (entry.empty() || entry.starts_with('#')) continue;
    const std::string where = join(origin, " line ", number);
    const std::size_t sign = entry.find('=');
    GLUON_CHECK(sign != std::string_view::npos, where, ": expected key=value, got '", entry, "'");
    const ConfigField& field = field_named(trim(entry.substr(0, sign)), where);
    GLUON_CHECK(seen.insert(field.name).second, where, ": the key '", field.name, "' is given twice");
    const std::string value = parse_value(trim(entry.substr(sign + 1)), where);
    if (!keep.contains(field.name)) set_value(config, field, value, join(where, ": ", field.name));
  }
  const bool preset_named = seen.contains("preset") || keep.contains("preset");
  if (config.radius == kAutoRadius && !preset_named) config.preset = "sphere";
}

void read_config_toml(const std::filesystem::path& path, TrainConfig& config, const std::set<std::string>& keep) {
  GLUON_CHECK(std::filesystem::exists(path), "config: no file ", path.string());
  GLUON_CHECK(!std::filesystem::is_directory(path), "config: ", path.string(), " is a folder, not a file");
  // Not read_text(): the file may be a pipe or a device without end.
  std::ifstream file(path, std::ios::binary);
  std::string text(kLargestFile + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  GLUON_CHECK(file.eof(), "config: ", path.string(),
              file.bad() || file.gcount() == 0 ? join(" cannot be read")
                                               : join(" has more than ", kLargestFile, " bytes, expected a TOML file"));
  text.resize(static_cast<std::size_t>(file.gcount()));
  parse_config_toml(text, "config " + path.string(), config, keep);
}

TrainConfig read_run_config(const std::filesystem::path& run) {
  (void)RunDirectory::open(run);
  check_regular(run / "config.toml", "run");
  TrainConfig config;
  read_config_toml(run / "config.toml", config);
  config.out = run.string();
  return config;
}

}  // namespace gluon::lab
