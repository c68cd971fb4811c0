#include "cli/probe.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/stop_on_signal.h"
#include "cli/text_output.h"
#include "cli/train_options.h"
#include "gluon/core/atomic_file.h"
#include "gluon/core/check.h"
#include "lab/sweep/probe.h"
#include "lab/train/config_fields.h"
#include "lab/train/effect.h"
#include "lab/train/tuned_config.h"

namespace gluon::cli {

struct ProbeCommand {
  bool wanted = false;
  std::string budget = "10%";
  std::string config_file;
  lab::TrainConfig config;
};

namespace {

namespace fs = std::filesystem;

void print_table(const lab::FactorSearch& search) {
  std::vector<lab::TriedFactor> tried = search.tried;
  std::ranges::sort(tried, {}, &lab::TriedFactor::factor);
  const double best = std::ranges::min(tried, {}, &lab::TriedFactor::loss).factor;
  const std::vector<int> widths = {-10, -18};
  print_row(widths, {"factor", "validation loss"});
  for (const auto& [factor, loss] : tried) {
    const std::string text = std::isinf(loss) ? "diverged" : join(std::fixed, std::setprecision(4), loss);
    print_row(widths, {join(factor), text + (factor == best ? "*" : " ")});
  }
}

void print_json(const lab::ProbePlan& plan, const lab::ProbeResult& result, const fs::path& config) {
  nlohmann::ordered_json probes = nlohmann::ordered_json::array();
  for (const auto& [factor, loss] : result.search.tried) {
    probes.push_back({{"factor", factor}, {"val", loss}});  // null when it diverged
  }
  const nlohmann::ordered_json json = {{"steps", plan.run_steps},       {"probe_steps", plan.steps},
                                       {"most_probes", plan.probes},    {"probes", probes},
                                       {"doubt", result.doubt()},       {"factor", result.factor},
                                       {"radius", result.tuned.radius}, {"config", config.string()}};
  std::cout << json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << '\n';
}

// "0.0123 = 0.45 K^-0.4 with K = 8000": the relative step that the factor gives.
std::string law_text(const lab::TrainConfig& run) {
  const Geometry geometry = run.geometry();
  for (const Rule& rule : geometry.rules()) {
    if (std::string text = rule.radius->explanation(); !text.empty()) return text;
  }
  return {};
}

void print_result(const lab::ProbePlan& plan, const lab::ProbeResult& result, const fs::path& config) {
  if (plan.probes > 0) {
    std::cout << '\n';
    print_table(result.search);
    std::cout << '\n';
    if (const std::string doubt = result.doubt(); !doubt.empty()) std::cout << "not settled: " << doubt << '\n';
  }
  std::cout << "radius = " << result.tuned.radius << " (preset sphere): " << law_text(result.tuned)
            << "\nnext run: gluon train --config " << config.string() << '\n';
}

}  // namespace

std::shared_ptr<ProbeCommand> add_probe_options(CLI::App& command) {
  auto probe = std::make_shared<ProbeCommand>();
  probe->config.preset = "sphere";
  CLI::Option* wanted =
      command.add_flag("--probe", probe->wanted,
                       "Find the factor on preset sphere's law by short runs in the folder --out; "
                       "takes the flags of gluon train, of which --radius factor=F says where to begin");
  command.add_option("--budget", probe->budget, "What the probes may take of the run's --steps")
      ->capture_default_str()
      ->needs(wanted);
  command.add_option("--config", probe->config_file, "TOML file with the keys of gluon train, for --probe")
      ->check(given_path())
      ->needs(wanted);
  add_train_options(command, probe->config);
  for (const lab::ConfigField& field : lab::config_fields()) command.get_option(join("--", field.name))->needs(wanted);
  return probe;
}

void run_probe(const CLI::App& command, ProbeCommand& probe, const std::string& out, bool json) {
  GLUON_CHECK(!out.empty(), "tune: --probe needs the folder of its probes: --out DIR");
  read_config(command, probe.config_file, probe.config);
  const lab::TrainConfig& run = probe.config;
  run.validate();
  lab::check_effect(run);
  (void)lab::first_factor(run);
  const lab::ProbePlan plan = lab::plan_probes(run, lab::parse_budget(probe.budget));
  const fs::path config = fs::path(out) / "tuned.toml";
  lab::check_tuned_path(config);
  // With --json the standard output is one document.
  std::ostream& text = json ? std::cerr : std::cout;
  text << plan.sentence() << std::endl;
  lab::Progress progress(json ? std::cerr : raw_output(), isatty(json ? STDERR_FILENO : STDOUT_FILENO) == 1);
  const auto announce = [&](const std::string& line) { text << line << std::endl; };
  const lab::ProbeResult result = lab::run_probes(run, plan, out, progress, announce, stop_on_signal());
  if (result.search.stopped) {
    text << "\nstopped after " << result.search.tried.size() << " probes; run the same command again to continue\n";
    throw CLI::RuntimeError(stopped_code());
  }
  const std::string toml = lab::tuned_toml(result.tuned);
  GLUON_CHECK(
      plan.probes > 0 || !fs::exists(config) || read_text(config, "tune") == toml, "tune: ", config.string(),
      " holds another result, which one of no probes must not replace; give a larger --budget or choose another "
      "--out");
  fs::create_directories(out);
  write_text_atomically(config, toml);
  json ? print_json(plan, result, config) : print_result(plan, result, config);
}

}  // namespace gluon::cli
