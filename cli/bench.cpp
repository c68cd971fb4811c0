#include <iomanip>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "benchmarks/fit.h"
#include "benchmarks/smoothness.h"
#include "benchmarks/step.h"
#include "benchmarks/train.h"
#include "cli/commands.h"
#include "cli/train_options.h"
#include "gluon/core/check.h"

namespace gluon::cli {
namespace {

using benchmarks::StepOptions;
using benchmarks::StepResult;
using benchmarks::StepSide;

nlohmann::json to_json(const StepSide& side) {
  return {{"name", side.name}, {"ms", side.milliseconds}, {"gflops", side.gflops}, {"error", side.error}};
}

void print_json(const StepOptions& options, const StepResult& result) {
  const nlohmann::json json = {
      {"benchmark", "step"},
      {"model", options.model},
      {"device", options.device},
      {"threads", result.threads},
      {"matrices", result.matrices},
      {"parameters", result.parameters},
      {"repeats", options.repeats},
      {"ours", to_json(result.ours)},
      {"ratio", result.ratio},
      {"reference", to_json(result.reference)},
      {"bound_ms", result.bound_milliseconds},
  };
  std::cout << json.dump(2) << '\n';
}

void print_table(const StepOptions& options, const StepResult& result) {
  std::cout << "one optimizer step, " << options.model << ": " << result.matrices << " matrices, " << result.parameters
            << " parameters, float32, " << options.device << ", " << result.threads << " threads\n\n"
            << std::left << std::setw(34) << "side" << std::right << std::setw(12) << "ms" << std::setw(12) << "GFLOP/s"
            << std::setw(12) << "error" << '\n';
  const auto line = [](const std::string& label, const StepSide& side) {
    std::cout << std::left << std::setw(34) << label + " (" + side.name + ")" << std::right << std::fixed
              << std::setprecision(side.milliseconds < 10 ? 3 : 1) << std::setw(12) << side.milliseconds
              << std::setprecision(1) << std::setw(12) << side.gflops << std::setprecision(4) << std::setw(12)
              << side.error << '\n';
  };
  line("ours", result.ours);
  line("reference", result.reference);
  std::cout << "\nratio reference/ours " << std::setprecision(2) << result.ratio << "; bound "
            << std::setprecision(result.bound_milliseconds < 10 ? 3 : 1) << result.bound_milliseconds << " ms, reached "
            << std::setprecision(1) << 100 * result.bound_milliseconds / result.ours.milliseconds << " % of it\n";
}

void print_json(const lab::TrainConfig& config, const benchmarks::TrainResult& result) {
  const nlohmann::json json = {
      {"benchmark", "train"},
      {"model", config.model},
      {"preset", config.preset},
      {"device", config.device},
      {"threads", result.threads},
      {"tokens_per_second", result.tokens_per_second},
      {"forward_ms", 1e3 * result.step.forward},
      {"backward_ms", 1e3 * result.step.backward},
      {"optimizer_ms", 1e3 * result.step.optimizer},
      {"peak_megabytes", result.peak_megabytes},
      {"gpu_peak_bytes", result.gpu_peak_bytes},
  };
  std::cout << json.dump(2) << '\n';
}

void print_table(const lab::TrainConfig& config, const benchmarks::TrainResult& result) {
  std::cout << "training steps, " << config.model << ", " << config.preset << ", " << config.device << ", "
            << result.threads << " threads\n\n"
            << std::fixed << std::setprecision(1) << "tokens/s    " << result.tokens_per_second << '\n'
            << "forward     " << 1e3 * result.step.forward << " ms\n"
            << "backward    " << 1e3 * result.step.backward << " ms\n"
            << "optimizer   " << 1e3 * result.step.optimizer << " ms\n"
            << "peak memory " << result.peak_megabytes << " MB\n";
  if (result.gpu_peak_bytes > 0) {
    std::cout << "on the GPU  " << static_cast<double>(result.gpu_peak_bytes) / (1 << 30) << " GiB\n";
  }
}

void print_json(const lab::TrainConfig& config, const benchmarks::SmoothnessResult& result) {
  const nlohmann::json json = {
      {"benchmark", "smoothness"},
      {"model", config.model},
      {"preset", config.preset},
      {"every", config.smoothness_every},
      {"estimator", estimator_name(config.estimator())},
      {"threads", result.threads},
      {"plain_ms", result.plain_milliseconds},
      {"recorded_ms", result.recorded_milliseconds},
      {"overhead", result.overhead},
      {"bytes_during", result.bytes_during},
      {"bytes_after", result.bytes_after},
  };
  std::cout << json.dump(2) << '\n';
}

void print_table(const lab::TrainConfig& config, const benchmarks::SmoothnessResult& result) {
  std::cout << "recording smoothness every " << config.smoothness_every << " steps, "
            << estimator_name(config.estimator()) << ", " << config.model << ", " << config.preset << ", "
            << config.device << ", " << result.threads << " threads\n\n"
            << std::fixed << std::setprecision(1) << "without     " << result.plain_milliseconds << " ms per "
            << config.smoothness_every << " steps\n"
            << "with        " << result.recorded_milliseconds << " ms\n"
            << "overhead    " << std::setprecision(2) << 100 * result.overhead << " %\n"
            << "copies      " << std::setprecision(1) << static_cast<double>(result.bytes_during) / (1 << 20)
            << " MB during a pair, " << result.bytes_after << " bytes after it\n";
}

template <typename Options, typename Result> void print(bool as_json, const Options& options, const Result& result) {
  as_json ? print_json(options, result) : print_table(options, result);
}

void add_step(CLI::App& bench) {
  CLI::App* step =
      bench.add_subcommand("step", "One optimizer step over the hidden matrices of a model, or its embedding");
  auto options = std::make_shared<StepOptions>();
  auto json = std::make_shared<bool>(false);
  step->add_option("--model", options->model, "gpt124m, gpt1b3, cnn or embedding")->capture_default_str();
  step->add_option("--device", options->device, "cpu or cuda")->capture_default_str();
  step->add_option("--orthogonalizer", options->orthogonalizer, "Our side's orthogonalizer")->capture_default_str();
  step->add_option("--layers", options->layers, "Only this many blocks of the model (0: all)")->capture_default_str();
  step->add_option("--repeats", options->repeats, "Timed steps per side; the median counts")->capture_default_str();
  step->add_flag("--json", *json, "Print JSON");
  step->callback([options, json] { print(*json, *options, benchmarks::run_step(*options)); });
}

void add_train_steps(CLI::App& bench) {
  CLI::App* train = bench.add_subcommand("train", "Whole training steps; takes the flags of gluon train");
  auto config = std::make_shared<lab::TrainConfig>();
  auto repeats = std::make_shared<int64_t>(20);
  auto json = std::make_shared<bool>(false);
  add_train_options(*train, *config);
  train->add_option("--repeats", *repeats, "Timed steps; the medians count")->capture_default_str();
  train->add_flag("--json", *json, "Print JSON");
  train->callback([config, repeats, json] { print(*json, *config, benchmarks::run_train(*config, *repeats)); });
}

void add_smoothness(CLI::App& bench) {
  CLI::App* smoothness = bench.add_subcommand("smoothness", "What recording costs; takes the flags of gluon train");
  auto config = std::make_shared<lab::TrainConfig>();
  config->smoothness_every = 50;
  auto windows = std::make_shared<int64_t>(5);
  auto json = std::make_shared<bool>(false);
  add_train_options(*smoothness, *config);
  smoothness->add_option("--windows", *windows, "Timed windows per side; the medians count")->capture_default_str();
  smoothness->add_flag("--json", *json, "Print JSON");
  smoothness->callback(
      [config, windows, json] { print(*json, *config, benchmarks::run_smoothness(*config, *windows)); });
}

void add_fit_bench(CLI::App& bench) {
  CLI::App* fit = bench.add_subcommand("fit", "The fit of many samples, beside one pass over them");
  auto samples = std::make_shared<int64_t>(10'000'000);
  auto repeats = std::make_shared<int64_t>(5);
  auto json = std::make_shared<bool>(false);
  fit->add_option("--samples", *samples, "How many")->capture_default_str();
  fit->add_option("--repeats", *repeats, "Timed fits; the median counts")->capture_default_str();
  fit->add_flag("--json", *json, "Print JSON");
  fit->callback([samples, repeats, json] {
    const benchmarks::FitResult result = benchmarks::run_fit(*samples, *repeats);
    const double ratio = result.milliseconds / result.pass_milliseconds;
    if (*json) {
      const nlohmann::json text = {{"benchmark", "fit"},
                                   {"samples", *samples},
                                   {"ms", result.milliseconds},
                                   {"pass_ms", result.pass_milliseconds},
                                   {"ratio", ratio},
                                   {"L0", result.fit.l0},
                                   {"L1", result.fit.l1}};
      std::cout << text.dump(2) << '\n';
      return;
    }
    std::cout << "fit of " << *samples << " samples, lambda 5, one thread\n\n"
              << std::fixed << std::setprecision(1) << "fit         " << result.milliseconds << " ms\n"
              << "one pass    " << result.pass_milliseconds << " ms (the bound)\n"
              << "ratio       " << ratio << '\n';
  });
}

}  // namespace

void add_bench(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Time ours beside a reference in the same run");
  bench->callback([bench] {
    if (bench->get_subcommands().empty())
      throw InputError("bench: name what to measure: step, train, smoothness or fit");
  });
  add_step(*bench);
  add_train_steps(*bench);
  add_smoothness(*bench);
  add_fit_bench(*bench);
}

}  // namespace gluon::cli
