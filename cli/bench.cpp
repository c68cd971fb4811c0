#include <functional>
#include <iomanip>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "benchmarks/benchmarks.h"
#include "cli/commands.h"
#include "cli/train_options.h"
#include "gluon/core/check.h"
#include "lab/train/effect.h"

namespace gluon::cli {
namespace {

using benchmarks::StepOptions;
using benchmarks::StepSide;

/// What a benchmark prints: one of the two.
struct Output {
  nlohmann::json json;
  std::string table;
};

void set_callback(CLI::App* command, std::function<Output()> run) {
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Print JSON");
  command->callback([json, run = std::move(run)] {
    const Output output = run();
    std::cout << (*json ? output.json.dump(2) + "\n" : output.table);
  });
}

std::string fixed(double value, int digits = 1) { return join(std::fixed, std::setprecision(digits), value); }
std::string milliseconds(double value) { return fixed(value, value < 10 ? 3 : 1); }

nlohmann::json to_json(const StepSide& side) {
  return {{"name", side.name}, {"ms", side.milliseconds}, {"gflops", side.gflops}};
}

nlohmann::json to_json(const std::optional<double>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json(nullptr);
}

nlohmann::json to_json(const std::vector<benchmarks::StepErrors>& sides) {
  nlohmann::json rows = nlohmann::json::array();
  for (const auto& [name, errors] : sides) {
    rows.push_back({{"name", name},
                    {"gaussian", errors.gaussian},
                    {"recorded", to_json(errors.recorded)},
                    {"one_over_i", to_json(errors.one_over_i)}});
  }
  return rows;
}

std::string table_line(const std::string& side, const std::vector<std::string>& cells) {
  std::string line = join(std::left, std::setw(40), side, std::right);
  for (const std::string& cell : cells) line += join(std::setw(12), cell);
  return line + '\n';
}

std::string table_line(const std::string& label, const StepSide& side) {
  return table_line(label + " (" + side.name + ")", {milliseconds(side.milliseconds), fixed(side.gflops)});
}

std::string error_table(const std::vector<benchmarks::StepErrors>& sides) {
  std::string table = table_line("distance from the exact direction", {"Gaussian", "recorded", "1/i"});
  const auto cell = [](const std::optional<double>& value) { return value ? fixed(*value, 4) : "-"; };
  for (const auto& [name, errors] : sides) {
    table += table_line(name, {cell(errors.gaussian), cell(errors.recorded), cell(errors.one_over_i)});
  }
  return table;
}

Output bench_step(const StepOptions& options) {
  const benchmarks::StepResult result = benchmarks::run_step(options);
  nlohmann::json stages = nullptr;
  std::string stages_line;
  if (const auto& side = result.with_stages) {
    const double more = side->milliseconds - result.ours.milliseconds;
    stages = {{"name", side->name}, {"ms", side->milliseconds}};
    stages_line = join(table_line(side->name, std::vector{milliseconds(side->milliseconds)}), "  more than ours ",
                       fixed(more, 3), " ms, ", fixed(100 * more / result.ours.milliseconds), " %\n");
  }
  return {{{"benchmark", "step"},
           {"model", options.model},
           {"device", options.device},
           {"threads", result.threads},
           {"matrices", result.matrices},
           {"parameters", result.parameters},
           {"repeats", options.repeats},
           {"ours", to_json(result.ours)},
           {"ratio", result.ratio},
           {"reference", to_json(result.reference)},
           {"with_stages", stages},
           {"errors", to_json(result.errors)},
           {"bound_ms", result.bound_milliseconds}},
          join("one optimizer step, ", options.model, ": ", result.matrices, " matrices, ", result.parameters,
               " parameters, float32, ", options.device, ", ", result.threads, " threads\n\n",
               table_line("side", {"ms", "GFLOP/s"}), table_line("ours", result.ours),
               table_line("reference", result.reference), stages_line, '\n', error_table(result.errors),
               "\nratio reference/ours ", fixed(result.ratio, 2), "; bound ", milliseconds(result.bound_milliseconds),
               " ms, reached ", fixed(100 * result.bound_milliseconds / result.ours.milliseconds), " % of it\n")};
}

Output bench_train(const lab::TrainConfig& config, int64_t repeats) {
  const benchmarks::TrainResult result = benchmarks::run_train(config, repeats);
  const double forward = 1e3 * result.step.forward;
  const double backward = 1e3 * result.step.backward;
  const double optimizer = 1e3 * result.step.optimizer;
  const double gpu_gigabytes = static_cast<double>(result.gpu_peak_bytes) / (1 << 30);
  return {{{"benchmark", "train"},
           {"model", config.model},
           {"preset", config.preset},
           {"device", config.device},
           {"threads", result.threads},
           {"tokens_per_second", result.tokens_per_second},
           {"forward_ms", forward},
           {"backward_ms", backward},
           {"optimizer_ms", optimizer},
           {"peak_megabytes", result.peak_megabytes},
           {"gpu_peak_bytes", result.gpu_peak_bytes}},
          join("training steps, ", config.model, ", ", config.preset, ", ", config.device, ", ", result.threads,
               " threads\n\ntokens/s    ", fixed(result.tokens_per_second), "\nforward     ", fixed(forward),
               " ms\nbackward    ", fixed(backward), " ms\noptimizer   ", fixed(optimizer), " ms\npeak memory ",
               fixed(result.peak_megabytes), " MB\n",
               gpu_gigabytes > 0 ? "on the GPU  " + fixed(gpu_gigabytes) + " GiB\n" : "")};
}

Output bench_smoothness(const lab::TrainConfig& config, int64_t windows) {
  const benchmarks::SmoothnessResult result = benchmarks::run_smoothness(config, windows);
  const std::string_view estimator = estimator_name(config.estimator());
  return {{{"benchmark", "smoothness"},
           {"model", config.model},
           {"preset", config.preset},
           {"every", config.smoothness_every},
           {"estimator", estimator},
           {"threads", result.threads},
           {"plain_ms", result.plain_milliseconds},
           {"recorded_ms", result.recorded_milliseconds},
           {"overhead", result.overhead},
           {"bytes_during", result.bytes_during},
           {"bytes_after", result.bytes_after}},
          join("recording smoothness every ", config.smoothness_every, " steps, ", estimator, ", ", config.model, ", ",
               config.preset, ", ", config.device, ", ", result.threads, " threads\n\nwithout     ",
               fixed(result.plain_milliseconds), " ms per ", config.smoothness_every, " steps\nwith        ",
               fixed(result.recorded_milliseconds), " ms\noverhead    ", fixed(100 * result.overhead, 2),
               " %\ncopies      ", fixed(static_cast<double>(result.bytes_during) / (1 << 20)), " MB during a pair, ",
               result.bytes_after, " bytes after it\n")};
}

Output bench_fit(int64_t samples, int64_t repeats) {
  const benchmarks::FitResult result = benchmarks::run_fit(samples, repeats);
  const double ratio = result.milliseconds / result.pass_milliseconds;
  return {
      {{"benchmark", "fit"},
       {"samples", samples},
       {"ms", result.milliseconds},
       {"pass_ms", result.pass_milliseconds},
       {"ratio", ratio},
       {"L0", result.fit.l0},
       {"L1", result.fit.l1}},
      join("fit of ", samples, " samples, lambda 5, one thread\n\nfit         ", fixed(result.milliseconds),
           " ms\none pass    ", fixed(result.pass_milliseconds), " ms (the bound)\nratio       ", fixed(ratio), '\n')};
}

void add_step(CLI::App& bench) {
  CLI::App* step =
      bench.add_subcommand("step", "One optimizer step over the hidden matrices of a model, or its embedding");
  auto options = std::make_shared<StepOptions>();
  step->add_option("--model", options->model, "gpt124m, gpt1b3, cnn or embedding")->capture_default_str();
  step->add_option("--device", options->device, "cpu or cuda")->capture_default_str();
  step->add_option("--orthogonalizer", options->orthogonalizer, "Our side's orthogonalizer")->capture_default_str();
  step->add_option(
      "--momenta", options->momenta,
      "Checkpoint whose momenta measure the error, too (default: benchmarks/momenta.safetensors of the sources)");
  step->add_option("--normalize", options->normalize, "Time ours with this normalisation, too, as in normuon(0.95)");
  step->add_option("--decay", options->decay, "Time ours with this decay, too, as in cautious(0.01)");
  step->add_option("--sphere", options->sphere, "Time ours on this sphere, too: auto or its radius");
  step->add_option("--layers", options->layers, "Only this many blocks of the model (0: all)")->capture_default_str();
  step->add_option("--repeats", options->repeats, "Timed steps per side; the median counts")->capture_default_str();
  set_callback(step, [options] { return bench_step(*options); });
}

void add_train_steps(CLI::App& bench) {
  CLI::App* train = bench.add_subcommand("train", "Whole training steps; takes the flags of gluon train");
  auto config = std::make_shared<lab::TrainConfig>();
  auto repeats = std::make_shared<int64_t>(20);
  add_train_options(*train, *config);
  train->add_option("--repeats", *repeats, "Timed steps; the medians count")->capture_default_str();
  set_callback(train, [train, config, repeats] {
    read_config(*train, {}, *config);
    lab::check_effect(*config);
    return bench_train(*config, *repeats);
  });
}

void add_smoothness(CLI::App& bench) {
  CLI::App* smoothness = bench.add_subcommand("smoothness", "What recording costs; takes the flags of gluon train");
  auto config = std::make_shared<lab::TrainConfig>();
  config->smoothness_every = 50;
  auto windows = std::make_shared<int64_t>(5);
  add_train_options(*smoothness, *config);
  smoothness->add_option("--windows", *windows, "Timed windows per side; the medians count")->capture_default_str();
  set_callback(smoothness, [smoothness, config, windows] {
    read_config(*smoothness, {}, *config);
    lab::check_effect(*config);
    return bench_smoothness(*config, *windows);
  });
}

void add_fit_bench(CLI::App& bench) {
  CLI::App* fit = bench.add_subcommand("fit", "The fit of many samples, beside one pass over them");
  auto samples = std::make_shared<int64_t>(10'000'000);
  auto repeats = std::make_shared<int64_t>(5);
  fit->add_option("--samples", *samples, "How many")->capture_default_str();
  fit->add_option("--repeats", *repeats, "Timed fits; the median counts")->capture_default_str();
  set_callback(fit, [samples, repeats] { return bench_fit(*samples, *repeats); });
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
