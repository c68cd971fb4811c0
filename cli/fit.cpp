// gluon fit: L0 and L1 of each layer. gluon tune: the radii they predict, as the config of the next run; with --probe
// see probe.h.

#include "gluon/fit/fit.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/commands.h"
#include "cli/probe.h"
#include "cli/train_options.h"
#include "gluon/core/atomic_file.h"
#include "gluon/core/check.h"
#include "gluon/core/printable.h"
#include "gluon/fit/radii.h"
#include "gluon/smoothness/trajectory.h"
#include "lab/train/config_fields.h"
#include "lab/train/run_directory.h"
#include "lab/train/tuned_config.h"

namespace gluon::cli {
namespace {

using nlohmann::ordered_json;

// What the samples of an estimator measure (docs/tuning.md), for fit and for tune; in the order of Estimator.
struct EstimatorText {
  const char* name;
  const char* note;
};
constexpr EstimatorText kEstimatorTexts[] = {
    {"consecutive (each step's own batch; L1 then measures mostly the noise between batches)",
     "WARNING: the samples are `consecutive`: the change of the gradient is mostly noise between batches, and "
     "predicted/used is about 0.7 for any radius. Record with --smoothness-mode same_batch."},
    {"full (the whole training set)",
     "The samples are `full`: curvature of the whole training set along the trajectory."},
    {"same_batch (the next batch at the old and at the new point)",
     "The samples are `same_batch`: curvature without the noise between batches. One-step radii do not rank whole "
     "runs; see docs/tuning.md."},
    {"unknown (not recorded in the file)", "WARNING: the file does not name the estimator of its samples."}};

const EstimatorText& text_of(Estimator estimator) { return kEstimatorTexts[static_cast<std::size_t>(estimator)]; }

std::string digits(double value, int precision) { return join(std::setprecision(precision), value); }

// ---- fit ----

std::optional<int64_t> parse_skip_first(const std::string& text) {
  if (text == "auto") return std::nullopt;
  int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  GLUON_CHECK(whole && count >= 0 && std::to_string(count) == text,
              "--skip-first: expected auto or a whole number of samples, got '", text, "'");
  return count;
}

struct FitCommand {
  std::string path;
  FitOptions fit;
  bool json = false;
};

// Names that are not UTF-8, as anything in a file may be, get replacement characters.
void print(const ordered_json& json) {
  std::cout << json.dump(2, ' ', false, ordered_json::error_handler_t::replace) << '\n';
}

void print_json(const TrajectoryFit& result) {
  ordered_json json = ordered_json::array();
  for (const LayerFit& layer : result.layers) {
    json.push_back({{"layer", layer.layer},
                    {"samples", layer.fit.samples},
                    {"L0", layer.fit.l0},
                    {"L1", layer.fit.l1},
                    {"mse_rel", layer.fit.mse_rel},
                    {"violations", layer.fit.violations},
                    {"left_out", layer.fit.left_out},
                    {"doubt", layer.fit.doubt}});
  }
  print(json);
}

void print_table(const TrajectoryFit& result, const FitOptions& options) {
  std::vector<int> widths = {7, 7, -9, -13, -13, -14, -13, -10, 10};
  for (const LayerFit& layer : result.layers) {
    widths[0] = std::max(widths[0], static_cast<int>(printable(layer.layer).size()) + 2);
    widths[1] = std::max(widths[1], static_cast<int>(printable(layer.group).size()) + 2);
  }
  std::cout << "estimator: " << text_of(result.estimator).name << '\n'
            << "Lhat ~ L0 + L1 |g|*, lambda " << options.lambda << (options.l0_zero ? ", L0 = 0" : "") << "\n\n";
  print_row(widths, {"layer", "group", "samples", "L0", "L1", "relative MSE", "violations", "left out"});
  for (const auto& [layer, group, fit, unmoved, gradient, radius] : result.layers) {
    std::vector<std::string> cells = {printable(layer),
                                      printable(group),
                                      std::to_string(fit.samples),
                                      digits(fit.l0, 6),
                                      digits(fit.l1, 6),
                                      digits(fit.mse_rel, 3),
                                      join(std::fixed, std::setprecision(1), 100 * fit.violations, " %"),
                                      std::to_string(fit.left_out)};
    if (!fit.doubt.empty()) cells.emplace_back("  doubtful");
    print_row(widths, cells);
  }
}

std::string count_text(std::size_t count, std::string_view what) {
  return join(count, ' ', what, count == 1 ? "" : "s");
}

// What the rule left out, and which fits mean nothing.
void print_doubts(const TrajectoryFit& result, std::ostream& out) {
  std::size_t cut = 0;
  int64_t left_out = 0;
  for (const LayerFit& layer : result.layers) {
    cut += layer.fit.left_out > 0;
    left_out += layer.fit.left_out;
  }
  if (cut > 0) {
    out << "left out: " << count_text(static_cast<std::size_t>(left_out), "sample") << " at the start of "
        << count_text(cut, "layer") << ", more than " << kOutlier
        << " times above the line of the others (--skip-first 0 takes all)\n";
  }
  for (const LayerFit& layer : result.layers) {
    if (layer.fit.doubt.empty()) continue;
    out << "doubtful: layer '" << printable(layer.layer) << "': " << layer.fit.doubt << '\n';
  }
}

void print_unfitted(const TrajectoryFit& fits, std::ostream& out) {
  for (const UnfittedLayer& layer : fits.unfitted) {
    out << "not fitted: layer '" << printable(layer.layer) << "': " << layer.reason << '\n';
  }
}

// Lists samples and layers without a fit; with --json on stderr, because the JSON has fits only.
void print_omissions(const TrajectoryFit& result, std::ostream& out) {
  print_doubts(result, out);
  for (const LayerFit& layer : result.layers) {
    if (layer.unmoved == 0) continue;
    out << "layer '" << printable(layer.layer) << "': left out " << layer.unmoved
        << " samples in which it had not moved\n";
  }
  print_unfitted(result, out);
}

void fit(const FitCommand& command) {
  command.fit.validate();
  const TrajectoryFit result = fit_trajectory(read_trajectory(command.path), command.fit);
  if (result.layers.empty()) {
    const UnfittedLayer& first = result.unfitted.front();
    throw InputError(join("fit: none of the ", result.unfitted.size(), " layers of ", command.path,
                          " can be fitted; layer '", printable(first.layer), "': ", first.reason));
  }
  command.json ? print_json(result) : print_table(result, command.fit);
  print_omissions(result, command.json ? std::cerr : std::cout);
}

// ---- tune ----

struct TuneCommand {
  std::string run;
  std::string out;
  FitOptions fit;
  bool json = false;
  std::shared_ptr<ProbeCommand> probe;
};

void print_json(const std::vector<GroupRadius>& radii, Estimator estimator, bool relative, const std::string& config) {
  ordered_json groups = ordered_json::array();
  for (const GroupRadius& radius : radii) {
    groups.push_back({{"group", radius.group},
                      {"layers", radius.layers},
                      {"L0", radius.l0},
                      {"L1", radius.l1},
                      {"gradient", radius.gradient},
                      {"predicted", radius.predicted},
                      {"used", radius.used},
                      {"ratio", radius.predicted / radius.used}});
  }
  const ordered_json json = {
      {"estimator", estimator_name(estimator)}, {"relative", relative}, {"config", config}, {"groups", groups}};
  print(json);
}

void print_table(const std::vector<GroupRadius>& radii, bool relative) {
  const std::vector<int> widths = {12, -8, -12, -12, -12, -12, -12, -12};
  print_row(widths, {"group", "layers", "L0", "L1", "|g|*", "predicted", relative ? "relative" : "used",
                     relative ? "" : "ratio"});
  for (const auto& [group, layers, l0, l1, gradient, predicted, used, doubt] : radii) {
    std::vector<std::string> cells = {printable(group), std::to_string(layers), digits(l0, 4),
                                      digits(l1, 4),    digits(gradient, 4),    digits(predicted, 4)};
    if (relative) {
      cells.push_back(digits(predicted / radii.front().predicted, 4));
    } else if (std::isnan(used)) {
      cells.insert(cells.end(), {"AdamW", "-"});
    } else {
      cells.insert(cells.end(), {digits(used, 4), digits(predicted / used, 4)});
    }
    print_row(widths, cells);
  }
}

// Samples and layers that the radii do not use, and what the next run has beside them.
void print_notes(const TrajectoryFit& fits, const FullRadiusSamples& selection, const lab::TunedConfig& tuned,
                 std::ostream& out) {
  if (selection.kept < selection.all) {
    out << "ignored: " << selection.all - selection.kept << " of " << selection.all
        << " samples, from warmup and cooldown, below " << 100 * kFullRadius << " % of the full radii\n";
  }
  print_doubts(fits, out);
  for (const LayerFit& layer : fits.layers) {
    if (layer.fit.l0 + layer.fit.l1 == 0) {
      out << "ignored: layer '" << printable(layer.layer) << "': its gradient never changed\n";
    }
  }
  print_unfitted(fits, out);
  for (const std::string& note : tuned.notes) out << printable(note) << '\n';
}

void tune(const TuneCommand& command) {
  GLUON_CHECK(!command.run.empty(), "tune: expected a run directory, or --probe and the flags of gluon train");
  const lab::TrainConfig config = lab::read_run_config(command.run);
  const std::string out = command.out.empty() ? command.run + "/tuned.toml" : command.out;
  lab::check_tuned_path(out);
  Trajectory trajectory = read_trajectory(command.run);
  const FullRadiusSamples selection =
      config.radii_follow_gradients()
          ? FullRadiusSamples{std::move(trajectory)}
          : at_full_radius(std::move(trajectory), lab::RunDirectory::open(command.run).rollbacks());
  const TrajectoryFit fits = fit_trajectory(selection.trajectory, command.fit);
  const std::vector<GroupRadius> radii = predict_radii(fits);
  for (const GroupRadius& radius : radii) {
    GLUON_CHECK(radius.doubt.empty(), "tune: no radius for group '", radius.group, "': ", radius.doubt,
                "; record more samples, or leave out others with --skip-first");
  }
  const lab::TunedConfig tuned = lab::tuned_config(config, radii, fits);
  const lab::TrainConfig& next = tuned.config;
  next.validate();
  write_text_atomically(out, lab::tuned_toml(next));
  // AdamW has no radii: only the ratios between the groups apply to the next run.
  const bool relative = config.preset == "adamw";
  if (command.json) {
    std::cerr << text_of(fits.estimator).note << '\n';
    print_notes(fits, selection, tuned, std::cerr);
    print_json(radii, fits.estimator, relative, out);
    return;
  }
  std::cout << text_of(fits.estimator).note << "\n\n";
  print_table(radii, relative);
  print_notes(fits, selection, tuned, std::cout);
  if (relative) std::cout << "\nAn AdamW run gives the ratios between the groups, not their sizes.\n";
  std::cout << "\nradius = " << next.radius << " (preset " << next.preset << ")\nnext run: gluon train --config " << out
            << '\n';
}

}  // namespace

void print_row(const std::vector<int>& widths, const std::vector<std::string>& cells) {
  for (std::size_t i = 0; i < cells.size(); ++i) {
    std::cout << (widths[i] < 0 ? std::right : std::left) << std::setw(std::abs(widths[i])) << cells[i];
  }
  std::cout << '\n';
}

void add_fit_options(CLI::App& command, FitOptions& fit) {
  command.add_option("--lambda", fit.lambda, "Extra weight of samples above L0 + L1 |g|*; 0: least squares")
      ->capture_default_str();
  command.add_flag("--l0-zero", fit.l0_zero, "Keep L0 at 0 and fit L1 alone");
  command
      .add_option_function<std::string>(
          "--skip-first", [&fit](const std::string& text) { fit.skip_first = parse_skip_first(text); },
          "Leave out the first N samples of each layer; auto: those far above the line of the others")
      ->default_str("auto")
      ->type_name("auto|N");
}

void add_fit(CLI::App& app) {
  CLI::App* command = app.add_subcommand("fit", "L0 and L1 of each layer from measured smoothness");
  auto options = std::make_shared<FitCommand>();
  command->add_option("path", options->path, "Run directory, smoothness.csv or a log of the paper's authors")
      ->required()
      ->check(given_path());
  add_fit_options(*command, options->fit);
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([options] { fit(*options); });
}

void add_tune(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("tune", "Radii from the smoothness that a run recorded, or by probes before it");
  auto options = std::make_shared<TuneCommand>();
  command->add_option("run", options->run, "Run directory")->check(given_path());
  add_fit_options(*command, options->fit);
  command
      ->add_option("--out", options->out,
                   "Config for the next run (default: RUN/tuned.toml); with --probe the folder for the probes and it")
      ->check(given_path());
  command->add_flag("--json", options->json, "Print JSON");
  options->probe = add_probe_options(*command);
  for (const char* flag : {"--lambda", "--l0-zero", "--skip-first"}) {
    command->get_option(flag)->excludes(command->get_option("--probe"));
  }
  command->callback([command, options] {
    if (command->count("--probe") == 0) return tune(*options);
    // Not as excludes(): the value of an unknown flag is taken for the run, and it is the flag that must be named.
    GLUON_CHECK(options->run.empty(), "tune: --probe takes no run directory, got ", options->run);
    run_probe(*command, *options->probe, options->out, options->json);
  });
}

}  // namespace gluon::cli
