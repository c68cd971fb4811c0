#include "lab/sweep/sweep.h"

#include <unistd.h>

#include <iostream>
#include <memory>

#include "cli/commands.h"
#include "cli/stop_on_signal.h"
#include "cli/text_output.h"
#include "cli/train_options.h"
#include "gluon/core/check.h"

namespace gluon::cli {
namespace {

struct SweepCommand {
  lab::TrainConfig config;
  std::vector<std::string> axes;
  std::string config_file;
  std::string out;
};

void sweep(CLI::App& app, SweepCommand& command) {
  read_config(app, command.config_file, command.config);
  lab::SweepOptions options{.axes = {}, .out = command.out};
  for (const std::string& axis : command.axes) options.axes.push_back(lab::parse_axis(axis));
  const std::size_t all = lab::count_cells(options.axes);
  lab::Progress progress(raw_output(), isatty(STDOUT_FILENO) == 1);
  const auto announce = [](const std::string& line) { std::cout << line << std::endl; };
  const std::vector<lab::SweepCell> cells =
      lab::run_sweep(command.config, options, progress, announce, stop_on_signal());
  if (cells.size() < all) {
    std::cout << "\nstopped, " << cells.size() << " of " << all
              << " cells are finished; run the same command again to continue\n";
  }
  if (!cells.empty()) {
    std::cout << "\nvalidation loss after " << command.config.steps << " steps (* the lowest)\n\n"
              << lab::sweep_table(options, cells) << "\n"
              << command.out << "/sweep.csv\n";
  }
  if (cells.size() < all && stopped_code() != 0) throw CLI::RuntimeError(stopped_code());
}

}  // namespace

void add_sweep(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("sweep", "Train once per cell of a grid of radii; takes the flags of gluon train");
  auto options = std::make_shared<SweepCommand>();
  add_train_options(*command, options->config);
  command->remove_option(command->get_option("--radius"));
  command->add_option("--radius", options->axes, "Radii by group: hidden=0.01,0.02 embedding=0.5,1 (one run each)")
      ->required();
  command->add_option("--out", options->out, "Folder of the sweep; the same command continues it")
      ->required()
      ->check(given_path());
  command->add_option("--config", options->config_file, "TOML file with the keys of gluon train; its radius is ignored")
      ->check(given_path());
  command->callback([command, options] { sweep(*command, *options); });
}

}  // namespace gluon::cli
