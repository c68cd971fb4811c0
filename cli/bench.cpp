#include <iomanip>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "benchmarks/step.h"
#include "cli/commands.h"
#include "gluon/check.h"

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
  std::cout << "one optimizer step, " << options.model << ": " << result.matrices << " matrices, "
            << result.parameters << " parameters, float32, " << options.device << ", " << result.threads
            << " threads\n\n"
            << std::left << std::setw(34) << "side" << std::right << std::setw(12) << "ms" << std::setw(12)
            << "GFLOP/s" << std::setw(12) << "error" << '\n';
  const auto line = [](const std::string& label, const StepSide& side) {
    std::cout << std::left << std::setw(34) << label + " (" + side.name + ")" << std::right << std::fixed
              << std::setprecision(1) << std::setw(12) << side.milliseconds << std::setw(12) << side.gflops
              << std::setprecision(4) << std::setw(12) << side.error << '\n';
  };
  line("ours", result.ours);
  line("reference", result.reference);
  std::cout << "\nratio reference/ours " << std::setprecision(2) << result.ratio << "; bound "
            << std::setprecision(1) << result.bound_milliseconds << " ms, reached "
            << 100 * result.bound_milliseconds / result.ours.milliseconds << " % of it\n";
}

}  // namespace

void add_bench(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Time ours beside a reference in the same run");
  bench->callback([bench] {
    if (bench->get_subcommands().empty()) throw gluon::InputError("bench: name what to measure: step");
  });
  CLI::App* step = bench->add_subcommand("step", "One optimizer step over the hidden matrices of a model");
  auto options = std::make_shared<StepOptions>();
  auto json = std::make_shared<bool>(false);
  step->add_option("--model", options->model, "gpt124m, gpt1b3 or cnn")->capture_default_str();
  step->add_option("--device", options->device, "cpu")->capture_default_str();
  step->add_option("--orthogonalizer", options->orthogonalizer, "Our side's orthogonalizer")
      ->capture_default_str();
  step->add_option("--layers", options->layers, "Only this many blocks of the model (0: all)")
      ->capture_default_str();
  step->add_option("--repeats", options->repeats, "Timed steps per side; the median counts")
      ->capture_default_str();
  step->add_flag("--json", *json, "Print JSON");
  step->callback([options, json] {
    const StepResult result = benchmarks::run_step(*options);
    *json ? print_json(*options, result) : print_table(*options, result);
  });
}

}  // namespace gluon::cli
