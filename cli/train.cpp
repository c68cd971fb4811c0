#include <unistd.h>

#include <iomanip>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>

#include "cli/commands.h"
#include "cli/out_of_memory.h"
#include "cli/stop_on_signal.h"
#include "cli/train_options.h"
#include "gluon/core/atomic_file.h"
#include "gluon/core/check.h"
#include "lab/models/zoo.h"
#include "lab/ranks/join_ranks.h"
#include "lab/ranks/launcher.h"
#include "lab/report/page.h"
#include "lab/report/report_json.h"
#include "lab/train/event_file.h"
#include "lab/train/experiment.h"
#include "lab/train/run_facts.h"
#include "lab/train/sample.h"
#include "lab/train/trainer.h"

namespace gluon::cli {
namespace {

// For ranks to notice that another one has ended: one timeout and what they need to tell each other, within reason.
constexpr std::chrono::seconds kTelling{10}, kGrace{30};

struct TrainCommand {
  lab::TrainConfig config;
  std::string config_file;
  bool resume = false;
  bool report = false;
  bool tensorboard = false;
  int ranks = 0;  // 0: as the environment says
  double rank_timeout = 600;
  int64_t sample = 0;  // tokens to write at the end
};

std::string default_stem(const lab::TrainConfig& config) { return config.model + "-" + config.preset; }

void print_summary(const lab::TrainConfig& config, const lab::Experiment& experiment,
                   const lab::TrainSummary& summary, const std::filesystem::path& run) {
  std::cout << std::fixed << std::setprecision(4) << '\n'
            << (summary.interrupted ? "stopped" : "finished") << " after " << summary.steps << " steps, "
            << std::setprecision(1) << summary.seconds << " s\n"
            << std::setprecision(4) << "  validation loss   " << summary.val << '\n'
            << "  unigram entropy   " << experiment.dataset->unigram_entropy() << '\n';
  if (summary.accuracy) {
    std::cout << "  test accuracy     " << std::setprecision(2) << 100 * *summary.accuracy << " %\n";
  }
  std::cout << "  run directory     " << run.string() << '\n';
  if (config.smoothness_every > 0) {
    std::cout << "  smoothness        gluon fit " << run.string() << ", gluon tune " << run.string() << '\n';
  }
  if (summary.interrupted)
    std::cout << "  go on with        gluon train --resume --out " << run.string() << '\n';
}

// A resumed run goes on with the event file it has.
void add_event_log(lab::RunDirectory& directory, bool asked) {
  const std::filesystem::path path = directory.path() / lab::kEventFile;
  if (!asked && !std::filesystem::exists(path)) return;
  auto events = std::make_shared<std::optional<lab::EventLog>>();
  directory.on_append([events, path, &directory](const lab::LogRow& row) {
    if (*events) {
      (*events)->append(row);
    } else {
      events->emplace(path, directory.log());  // rewound to the checkpoint by now
    }
  });
}

void write_page(const std::filesystem::path& run) {
  const lab::ReportData data = lab::collect_report(std::span(&run, 1));
  write_text_atomically(run / "report.html", lab::page_with(lab::report_json(data)));
  std::cout << "  report            " << (run / "report.html").string() << '\n';
}

std::chrono::milliseconds seconds(double count) {
  return std::chrono::milliseconds(static_cast<int64_t>(1000 * count));
}

// Takes `trainer` to where the run in config.out was saved. A run that ended before its first checkpoint begins again.
// Returns what there is to say about that.
std::string resume_run(const lab::TrainConfig& config, lab::Trainer& trainer, const std::string& data) {
  const std::filesystem::path folder = std::filesystem::path(config.out) / "checkpoint";
  if (!has_checkpoint(folder)) {
    const std::vector<lab::LogRow> rows = lab::RunDirectory::open(config.out).log();
    const int64_t taken = rows.empty() ? 0 : rows.back().step;
    GLUON_CHECK(taken <= config.save_every, "run: ", config.out, " has taken ", taken,
                " steps and holds no checkpoint; choose another --out");
    return "the run holds no checkpoint yet and begins again";
  }
  const LoadedCheckpoint loaded = load_checkpoint(folder);
  trainer.resume(loaded.checkpoint);
  GLUON_CHECK(config.steps >= trainer.steps_taken(), "--steps must be at least the ", trainer.steps_taken(),
              " that the run has taken, got ", config.steps);
  const auto learned = loaded.checkpoint.text.find("data");
  if (learned == loaded.checkpoint.text.end() || learned->second == data) return loaded.warning;
  return join(loaded.warning, loaded.warning.empty() ? "" : "; ",
              "the run so far learned other data: ", learned->second);
}

lab::TrainSummary train_in(lab::RunDirectory& directory, lab::Trainer& trainer, const std::string& data,
                           const TrainCommand& options) {
  const std::string resolved = config_text(options.config);
  trainer.prepare(directory);
  if (options.resume) directory.set_config(resolved);
  directory.set_facts(lab::facts_json({.device = options.config.device,
                                       .precision = trainer.precision(),
                                       .data = data,
                                       .routing = trainer.optimizer().routing_report()}));
  add_event_log(directory, options.tensorboard);
  std::cout << resolved << "\ndata: " << data << "\nprecision: " << trainer.precision() << "\n\n"
            << trainer.optimizer().routing_report() << std::endl;
  lab::Progress progress(std::cout, isatty(STDOUT_FILENO) == 1);
  return trainer.run(&directory, &progress, stop_on_signal());
}

// The other ranks, when there are any.
CollectivePtr meet_ranks(const TrainCommand& options, const Ranks& environment) {
  if (environment.size == 1 && !environment.given) {
    return options.ranks == 1 ? make_collective("single", {}) : nullptr;
  }
  GLUON_CHECK(options.ranks == 0 || options.ranks == environment.size, "--ranks ", options.ranks,
              " does not fit the environment's WORLD_SIZE ", environment.size);
  Ranks ranks = environment;
  ranks.timeout = seconds(options.rank_timeout);
  return lab::join_ranks(options.config.device == "cuda" ? "nccl" : "gloo", ranks);
}

// By the lines of its config. Files may lie elsewhere on another machine; what is in them is compared later.
void check_configs(const TrainCommand& options, Collective& collective) {
  std::map<std::string, std::string> parts{{"resume", options.resume ? "true" : "false"}};
  std::istringstream lines(config_text(options.config));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t sign = line.find('=');
    if (sign != std::string::npos) parts[line.substr(0, sign)] = line.substr(sign + 1);
  }
  parts.erase("data");
  parts.erase("vocab");
  check_agreement(collective, parts);
}

// This process's part of a run, alone or as one of several ranks.
void train_here(const TrainCommand& options, const CollectivePtr& collective) {
  const lab::TrainConfig& config = options.config;
  if (collective) check_configs(options, *collective);
  const lab::Experiment experiment = lab::make_experiment(config);
  lab::Trainer trainer(config, experiment.model, experiment.dataset, collective);
  if (collective && collective->rank() > 0) {
    if (options.resume) (void)resume_run(config, trainer, experiment.dataset->describe());
    (void)trainer.run(nullptr, nullptr, stop_on_signal());  // the first rank says and writes
    return;
  }

  const auto path =
      config.out.empty() ? lab::make_run_path(default_stem(config)) : std::filesystem::path(config.out);
  lab::RunDirectory directory =
      options.resume ? lab::RunDirectory::reopen(path) : lab::RunDirectory::create(path, config_text(config));
  std::string warning;
  if (options.resume) warning = resume_run(config, trainer, experiment.dataset->describe());
  if (!warning.empty()) std::cerr << "gluon: " << warning << '\n';
  lab::TrainSummary summary;
  try {
    summary = train_in(directory, trainer, experiment.dataset->describe(), options);
  } catch (...) {  // in the first step, or before: the folder does not stand in the way of the next try
    if (!options.resume && trainer.steps_taken() == 0) directory.discard();
    throw;
  }
  if (options.sample > 0 && !summary.interrupted) {
    lab::TrainConfig finished = config;
    finished.out = path.string();
    std::cout << "\na sample:\n" << lab::sample_text(finished, {.count = options.sample}).text << '\n';
  }
  print_summary(config, experiment, summary, path);
  if (options.report) write_page(path);
}

// An error of one rank ends all of them: the others have to know it. One that all ranks run into is said once.
void train_as_rank(const TrainCommand& options, const CollectivePtr& collective) {
  const std::string self = collective->rank() == 0 ? "" : join("rank ", collective->rank(), ": ");
  try {
    train_here(options, collective);
  } catch (const RankLost&) {
    throw;
  } catch (const InputError& error) {
    if (collective->leave(error.what()) && lab::was_launched()) throw CLI::RuntimeError(2);
    throw InputError(self + error.what());
  } catch (const std::filesystem::filesystem_error& error) {
    collective->leave(error.what());
    throw InputError(self + error.what());
  } catch (const std::exception& error) {
    const std::string memory = out_of_memory(error);
    collective->leave(memory.empty() ? error.what() : memory);
    if (!memory.empty()) throw InputError(self + memory);
    if (self.empty()) throw;
    throw std::runtime_error(self + error.what());
  }
}

void train(CLI::App& command, TrainCommand& options) {
  lab::TrainConfig& config = options.config;
  const Ranks environment = Ranks::from_environment();
  GLUON_CHECK(!options.resume || !config.out.empty(), "--resume needs the run directory: --out DIR");
  if (options.resume) {
    read_config(command, std::filesystem::path(config.out) / "config.toml");
  } else if (!options.config_file.empty()) {
    read_config(command, options.config_file);
  }
  config.validate();
  GLUON_CHECK(options.sample >= 0, "--sample must be >= 0, got ", options.sample);
  GLUON_CHECK(options.sample == 0 || lab::is_language_model(config.model), "--sample: ", config.model,
              " is no language model");
  GLUON_CHECK(options.rank_timeout >= 1e-3 && options.rank_timeout <= 1e6,
              "--rank-timeout must be in 0.001..1e6 seconds, got ", options.rank_timeout);
  if (!options.resume && !config.out.empty()) lab::RunDirectory::check_free(config.out);
  if (options.report) (void)lab::page_template();  // a program without it says so before it trains
  if (options.ranks > 1 && environment.size == 1 && !environment.given) {
    const auto grace = std::min<std::chrono::milliseconds>(kGrace, seconds(options.rank_timeout) + kTelling);
    const int code = lab::launch_ranks(options.ranks, grace);
    if (code != 0) throw CLI::RuntimeError(code);
    return;
  }
  lab::end_with_launcher();
  const CollectivePtr collective = meet_ranks(options, environment);
  config.parts = config.parts_for(collective ? collective->size() : 0);
  if (collective) {
    train_as_rank(options, collective);
  } else {
    train_here(options, nullptr);
  }
}

}  // namespace

void add_train(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("train", "Train a model; without --data on the project's own sources");
  auto options = std::make_shared<TrainCommand>();
  add_train_options(*command, options->config);
  CLI::Option* file =
      command->add_option("--config", options->config_file, "TOML file with the same keys; flags come first")
          ->configurable(false)
          ->group("Run");
  command->add_option("--out", options->config.out, "Run directory (default: runs/MODEL-PRESET-N)")
      ->configurable(false)
      ->group("Run");
  command->add_option("--sample", options->sample, "Tokens of text to write at the end (language models)")
      ->configurable(false)
      ->group("Run");
  command->add_flag("--resume", options->resume, "Go on with the run in --out, by its own config")
      ->excludes(file)
      ->configurable(false)
      ->group("Run");
  command->add_flag("--report", options->report, "Write the page RUN/report.html at the end (gluon report)")
      ->configurable(false)
      ->group("Run");
  command
      ->add_option("--ranks", options->ranks,
                   "Processes that share each batch and the optimizer; started here unless a launcher did")
      ->check(CLI::Range(1, 1024))
      ->configurable(false)
      ->group("Run");
  command
      ->add_option("--rank-timeout", options->rank_timeout, "Seconds to wait for a rank that does not answer")
      ->capture_default_str()
      ->configurable(false)
      ->group("Run");
  command
      ->add_flag("--tensorboard", options->tensorboard,
                 "Write scalars for TensorBoard into the run directory")
      ->configurable(false)
      ->group("Run");
  command->callback([command, options] { train(*command, *options); });
}

}  // namespace gluon::cli
