#include <cmath>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/fit_options.h"
#include "gluon/core/atomic_file.h"
#include "gluon/core/check.h"
#include "gluon/fit/radii.h"
#include "gluon/smoothness/trajectory.h"
#include "lab/train/config_fields.h"
#include "lab/train/tuned_config.h"

namespace gluon::cli {
namespace {

struct TuneCommand {
  std::string run;
  std::string out;
  FitOptions fit;
  bool json = false;
};

// What the samples of each estimator measure (docs/tuning.md).
std::string estimator_note(Estimator estimator) {
  switch (estimator) {
    case Estimator::kConsecutive:
      return "WARNING: the samples are `consecutive`: the change of the gradient is mostly noise between "
             "batches, and predicted/used is about 0.7 for any radius. Record with --smoothness-mode "
             "same_batch.";
    case Estimator::kFull: return "The samples are `full`: curvature of the whole training set along the trajectory.";
    case Estimator::kSameBatch:
      return "The samples are `same_batch`: curvature without the noise between batches. One-step radii do "
             "not "
             "rank whole runs; see docs/tuning.md.";
    case Estimator::kUnknown: break;
  }
  return "WARNING: the file does not name the estimator of its samples.";
}

void print_json(const std::vector<GroupRadius>& radii, Estimator estimator, bool relative, const std::string& config) {
  nlohmann::ordered_json groups = nlohmann::ordered_json::array();
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
  const nlohmann::ordered_json json = {
      {"estimator", estimator_name(estimator)}, {"relative", relative}, {"config", config}, {"groups", groups}};
  std::cout << json.dump(2) << '\n';
}

void print_table(const std::vector<GroupRadius>& radii, bool relative) {
  std::cout << std::left << std::setw(12) << "group" << std::right << std::setw(8) << "layers" << std::setw(12) << "L0"
            << std::setw(12) << "L1" << std::setw(12) << "|g|*" << std::setw(12) << "predicted" << std::setw(12)
            << (relative ? "relative" : "used") << std::setw(12) << (relative ? "" : "ratio") << '\n'
            << std::setprecision(4);
  for (const GroupRadius& radius : radii) {
    std::cout << std::left << std::setw(12) << radius.group << std::right << std::setw(8) << radius.layers
              << std::setw(12) << radius.l0 << std::setw(12) << radius.l1 << std::setw(12) << radius.gradient
              << std::setw(12) << radius.predicted;
    if (relative) {
      std::cout << std::setw(12) << radius.predicted / radii.front().predicted << '\n';
    } else if (std::isnan(radius.used)) {
      std::cout << std::setw(12) << "AdamW" << std::setw(12) << "-" << '\n';
    } else {
      std::cout << std::setw(12) << radius.used << std::setw(12) << radius.predicted / radius.used << '\n';
    }
  }
}

// Samples and layers that the radii do not use.
void print_notes(const TrajectoryFit& fits, const FullRadiusSamples& selection, std::ostream& out) {
  if (selection.kept < selection.all) {
    out << "ignored: " << selection.all - selection.kept << " of " << selection.all
        << " samples, from warmup and cooldown, below " << 100 * kFullRadius << " % of the full radii\n";
  }
  for (const LayerFit& layer : fits.layers) {
    if (layer.fit.l0 + layer.fit.l1 == 0) {
      out << "ignored: layer '" << layer.layer << "': its gradient never changed\n";
    }
  }
  for (const UnfittedLayer& layer : fits.unfitted) {
    out << "not fitted: layer '" << layer.layer << "': " << layer.reason << '\n';
  }
}

void tune(const TuneCommand& command) {
  const lab::TrainConfig config = lab::read_run_config(command.run);
  const std::string out = command.out.empty() ? command.run + "/tuned.toml" : command.out;
  GLUON_CHECK(std::filesystem::path(out).filename() != "config.toml",
              "tune: --out must not be the config of a run, got ", out);
  // The radii of theorem 1 follow the gradient: a smaller one does not mean a cooldown.
  Trajectory trajectory = read_trajectory(command.run);
  const FullRadiusSamples selection = config.preset == "deterministic_gluon" ? FullRadiusSamples{std::move(trajectory)}
                                                                             : at_full_radius(std::move(trajectory));
  const TrajectoryFit fits = fit_trajectory(selection.trajectory, command.fit);
  const std::vector<GroupRadius> radii = predict_radii(fits);
  const lab::TrainConfig next = lab::tuned_config(config, radii);
  next.validate();
  write_text_atomically(out, lab::config_toml(next));
  // AdamW has no radii: only the ratios between the groups apply to the next run.
  const bool relative = config.preset == "adamw";
  if (command.json) {
    std::cerr << estimator_note(fits.estimator) << '\n';
    print_notes(fits, selection, std::cerr);
    print_json(radii, fits.estimator, relative, out);
    return;
  }
  std::cout << estimator_note(fits.estimator) << "\n\n";
  print_table(radii, relative);
  print_notes(fits, selection, std::cout);
  if (relative) std::cout << "\nAn AdamW run gives the ratios between the groups, not their sizes.\n";
  std::cout << "\nradius = " << next.radius << " (preset " << next.preset << ")\nnext run: gluon train --config " << out
            << '\n';
}

}  // namespace

void add_tune(CLI::App& app) {
  CLI::App* command = app.add_subcommand("tune", "Predict radii from the smoothness that a run recorded");
  auto options = std::make_shared<TuneCommand>();
  command->add_option("run", options->run, "Run directory")->required();
  add_fit_options(*command, options->fit);
  command->add_option("--out", options->out, "Config for the next run (default: RUN/tuned.toml)");
  command->add_flag("--json", options->json, "Print JSON");
  command->callback([options] { tune(*options); });
}

}  // namespace gluon::cli
