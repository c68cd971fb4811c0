#include "gluon/fit/fit.h"

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/fit_options.h"
#include "gluon/core/check.h"
#include "gluon/smoothness/trajectory.h"

namespace gluon::cli {
namespace {

std::string estimator_text(Estimator estimator) {
  switch (estimator) {
    case Estimator::kConsecutive:
      return "consecutive (each step's own batch; L1 then measures mostly the noise between batches)";
    case Estimator::kFull: return "full (the whole training set)";
    case Estimator::kSameBatch: return "same_batch (the next batch at the old and at the new point)";
    case Estimator::kUnknown: break;
  }
  return "unknown (not recorded in the file)";
}

void print_json(const TrajectoryFit& result) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const LayerFit& layer : result.layers) {
    json.push_back({{"layer", layer.layer},
                    {"samples", layer.fit.samples},
                    {"L0", layer.fit.l0},
                    {"L1", layer.fit.l1},
                    {"mse_rel", layer.fit.mse_rel},
                    {"violations", layer.fit.violations}});
  }
  std::cout << json.dump(2) << '\n';
}

void print_table(const TrajectoryFit& result, const FitOptions& options) {
  std::size_t name = 5;
  std::size_t group = 5;
  for (const LayerFit& layer : result.layers) {
    name = std::max(name, layer.layer.size());
    group = std::max(group, layer.group.size());
  }
  std::cout << "estimator: " << estimator_text(result.estimator) << '\n'
            << "Lhat ~ L0 + L1 |g|*, lambda " << options.lambda << (options.l0_zero ? ", L0 = 0" : "") << "\n\n"
            << std::left << std::setw(static_cast<int>(name) + 2) << "layer" << std::setw(static_cast<int>(group) + 2)
            << "group" << std::right << std::setw(9) << "samples" << std::setw(13) << "L0" << std::setw(13) << "L1"
            << std::setw(12) << "mse_rel" << std::setw(13) << "violations" << '\n';
  for (const LayerFit& layer : result.layers) {
    std::cout << std::left << std::setw(static_cast<int>(name) + 2) << layer.layer
              << std::setw(static_cast<int>(group) + 2) << layer.group << std::right << std::setw(9)
              << layer.fit.samples << std::setprecision(6) << std::setw(13) << layer.fit.l0 << std::setw(13)
              << layer.fit.l1 << std::setprecision(3) << std::setw(12) << layer.fit.mse_rel << std::fixed
              << std::setprecision(1) << std::setw(11) << 100 * layer.fit.violations << " %\n"
              << std::defaultfloat;
  }
}

// Lists samples and layers without a fit; with --json on stderr, because the JSON has fits only.
void print_omissions(const TrajectoryFit& result, std::ostream& out) {
  for (const LayerFit& layer : result.layers) {
    if (layer.unmoved == 0) continue;
    out << "layer '" << layer.layer << "': left out " << layer.unmoved << " samples in which it had not moved\n";
  }
  for (const UnfittedLayer& layer : result.unfitted) {
    out << "not fitted: layer '" << layer.layer << "': " << layer.reason << '\n';
  }
}

void run(const std::string& path, const FitOptions& options, bool json) {
  options.validate();
  const TrajectoryFit result = fit_trajectory(read_trajectory(path), options);
  if (result.layers.empty()) {
    const UnfittedLayer& first = result.unfitted.front();
    throw InputError(join("fit: none of the ", result.unfitted.size(), " layers of ", path, " can be fitted; layer '",
                          first.layer, "': ", first.reason));
  }
  if (json) {
    print_json(result);
    print_omissions(result, std::cerr);
  } else {
    print_table(result, options);
    print_omissions(result, std::cout);
  }
}

}  // namespace

void add_fit(CLI::App& app) {
  CLI::App* command = app.add_subcommand("fit", "L0 and L1 of each layer from measured smoothness");
  auto path = std::make_shared<std::string>();
  auto options = std::make_shared<FitOptions>();
  auto json = std::make_shared<bool>(false);
  command->add_option("path", *path, "Run directory, smoothness.csv or a log of the paper's authors")->required();
  add_fit_options(*command, *options);
  command->add_flag("--json", *json, "Print JSON");
  command->callback([path, options, json] { run(*path, *options, *json); });
}

}  // namespace gluon::cli
