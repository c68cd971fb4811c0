#include <unistd.h>

#include <iomanip>
#include <iostream>
#include <map>
#include <memory>

#include "cli/commands.h"
#include "cli/stop_on_signal.h"
#include "cli/text_output.h"
#include "cli/train_options.h"
#include "gluon/core/atomic_file.h"
#include "gluon/core/check.h"
#include "lab/models/generate.h"
#include "lab/models/zoo.h"
#include "lab/ranks/join_ranks.h"
#include "lab/ranks/launcher.h"
#include "lab/report/page.h"
#include "lab/report/report_json.h"
#include "lab/train/config_fields.h"
#include "lab/train/effect.h"
#include "lab/train/error_text.h"
#include "lab/train/experiment.h"
#include "lab/train/run_status.h"
#include "lab/train/sample.h"
#include "lab/train/trainer.h"

namespace gluon::cli {
namespace {

// After a rank has failed the others get the rank timeout and kMessageTime to end by themselves, kMaxGrace at most.
constexpr std::chrono::seconds kMessageTime{10}, kMaxGrace{30};

struct TrainCommand {
  lab::TrainConfig config;
  std::string config_file;
  bool resume = false;
  bool report = false;
  bool tensorboard = false;
  int ranks = 0;  // 0: from the environment
  double rank_timeout = 600;
  int64_t sample = 0;  // tokens of text to print at the end
};

void print_summary(const lab::TrainConfig& config, const lab::Experiment& experiment, const lab::TrainSummary& summary,
                   const std::filesystem::path& run) {
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
  if (summary.interrupted) std::cout << "  continue with     gluon train --resume --out " << run.string() << '\n';
}

void write_page(const std::filesystem::path& run) {
  const lab::ReportData data = lab::collect_report(std::span(&run, 1));
  write_text_atomically(run / "report.html", lab::page_with(lab::report_json(data)));
  std::cout << "  report            " << (run / "report.html").string() << '\n';
}

std::chrono::milliseconds seconds(double count) {
  return std::chrono::milliseconds(static_cast<int64_t>(1000 * count));
}

// A run without a checkpoint may start over when it was killed before its first. Another has lost its checkpoints, and
// would lose its log and samples, too.
void check_starts_over(const std::string& out) {
  const lab::RunDirectory directory = lab::RunDirectory::open(out);
  const std::vector<lab::LogRow> rows = directory.log();
  const lab::TrainConfig saved = lab::read_run_config(out);
  const int64_t taken = rows.empty() ? 0 : rows.back().step;
  std::string damage;
  const lab::RunState state = lab::read_run_status(out, rows, saved.steps, damage).state;
  const bool ended = state == lab::RunState::kFinished || state == lab::RunState::kInterrupted;
  GLUON_CHECK(taken <= saved.save_every && (taken == 0 || !ended), "run: ", out, " has taken ", taken,
              " steps but has no checkpoint; choose another --out");
}

// Restores the last checkpoint of the run in config.out; a run that was killed before its first one starts over.
// Returns a warning, or nothing.
std::string resume_run(const lab::TrainConfig& config, lab::Trainer& trainer, const std::string& data) {
  const std::filesystem::path folder = std::filesystem::path(config.out) / "checkpoint";
  if (!has_checkpoint(folder)) {
    check_starts_over(config.out);
    return "the run has no checkpoint yet and starts over";
  }
  const LoadedCheckpoint loaded = load_checkpoint(folder);
  trainer.resume(loaded.checkpoint);
  if (config.on_nan == "rollback") {
    if (auto before = load_checkpoint_before(folder, trainer.steps_taken())) trainer.set_checkpoint_before(*before);
  }
  GLUON_CHECK(config.steps >= trainer.steps_taken(), "--steps must be at least the ", trainer.steps_taken(),
              " the run has taken, got ", config.steps);
  const auto earlier = loaded.checkpoint.text.find("data");
  if (earlier == loaded.checkpoint.text.end() || earlier->second == data) return loaded.warning;
  return join(loaded.warning, loaded.warning.empty() ? "" : "; ",
              "the run was trained on other data so far: ", earlier->second);
}

lab::TrainSummary train_in(lab::RunDirectory& directory, lab::Trainer& trainer, const std::string& resolved,
                           const std::string& data, const TrainCommand& options) {
  lab::Progress progress(raw_output(), isatty(STDOUT_FILENO) == 1);
  lab::RunWriter writer(directory, progress, trainer.recorder(), trainer.steps_taken());
  if (options.tensorboard) writer.add_event_file();
  if (trainer.steps_taken() < options.config.steps) {
    if (options.resume) directory.set_config(resolved);
    directory.set_facts({.device = options.config.device,
                         .precision = trainer.precision(),
                         .data = data,
                         .routing = trainer.optimizer().routing_report()});
  } else if (lab::config_toml(lab::read_run_config(directory.path().string())) != resolved) {
    std::cerr << "gluon: the run has taken all its " << trainer.steps_taken()
              << " steps; settings that differ from its own change nothing, and it keeps its own\n";
  }
  std::cout << resolved << "\ndata: " << data << "\nprecision: " << trainer.precision() << "\n\n"
            << trainer.optimizer().routing_report() << std::endl;
  return trainer.run(&writer, stop_on_signal());
}

// Connects to the other ranks; null without ranks.
CollectivePtr meet_ranks(const TrainCommand& options, const Ranks& environment) {
  if (environment.size == 1 && !environment.given) {
    return options.ranks == 1 ? make_collective("single", {}) : nullptr;
  }
  GLUON_CHECK(options.ranks == 0 || options.ranks == environment.size, "--ranks ", options.ranks,
              " does not fit the environment's WORLD_SIZE ", environment.size);
  Ranks ranks = environment;
  ranks.timeout = seconds(options.rank_timeout);
  return lab::join_ranks(options.config.on_gpu() ? "nccl" : "gloo", ranks);
}

// Trains in this process, alone or as one of several ranks. Returns the exit code.
int train_here(const TrainCommand& options, const CollectivePtr& collective) {
  const lab::TrainConfig& config = options.config;
  if (collective) {  // paths may differ between machines; the trainer compares what is in the files
    std::map<std::string, std::string> values = lab::values_shared_by_ranks(config);
    values["resume"] = options.resume ? "true" : "false";
    check_agreement(*collective, values);
  }
  const std::string resolved = lab::config_toml(config);
  const lab::Experiment experiment = lab::make_experiment(config);
  if (options.sample > 0) lab::check_writes_text(config, *experiment.dataset);
  lab::check_radius_effect(config, experiment.model->layers());
  lab::Trainer trainer(config, experiment.model, experiment.dataset, collective);
  if (collective && collective->rank() > 0) {
    if (options.resume) (void)resume_run(config, trainer, experiment.dataset->describe());
    const bool stopped = trainer.run(nullptr, stop_on_signal()).interrupted;  // the first rank prints and writes
    return stopped ? stopped_code() : 0;
  }

  const std::filesystem::path path =
      config.out.empty() ? lab::make_run_path(config.model + "-" + config.preset).string() : config.out;
  lab::RunDirectory directory =
      options.resume ? lab::RunDirectory::reopen(path) : lab::RunDirectory::create(path, resolved);
  std::string warning;
  if (options.resume) warning = resume_run(config, trainer, experiment.dataset->describe());
  if (!warning.empty()) std::cerr << "gluon: " << warning << '\n';
  lab::TrainSummary summary;
  try {
    summary = train_in(directory, trainer, resolved, experiment.dataset->describe(), options);
  } catch (const NonFiniteGradient&) {  // kept: its status says why
    throw;
  } catch (...) {  // a run that failed in its first step otherwise leaves no folder behind
    if (!options.resume && trainer.steps_taken() == 0) directory.discard();
    throw;
  }
  if (options.sample > 0 && !summary.interrupted) {
    std::cout << "\na sample:\n" << lab::sample_text(config, experiment, {.count = options.sample}) << '\n';
  }
  print_summary(config, experiment, summary, path);
  if (options.report) write_page(path);
  return summary.interrupted ? stopped_code() : 0;
}

// An error on one rank ends all of them, so it is sent to the others. An error that all ranks share is printed once.
int train_as_rank(const TrainCommand& options, const CollectivePtr& collective) {
  const std::string self = collective->rank() == 0 ? "" : join("rank ", collective->rank(), ": ");
  try {
    return train_here(options, collective);
  } catch (const RankLost&) {
    throw;
  } catch (const std::exception& error) {
    const std::string for_user = lab::user_error(error);
    const bool printed = collective->leave(for_user.empty() ? error.what() : for_user);
    if (for_user.empty()) throw std::runtime_error(self + error.what());
    if (printed && lab::was_launched()) throw CLI::RuntimeError(2);
    throw InputError(self + for_user);
  }
}

void train(CLI::App& command, TrainCommand& options) {
  lab::TrainConfig& config = options.config;
  const Ranks environment = Ranks::from_environment();
  GLUON_CHECK(!options.resume || !config.out.empty(), "--resume needs the run directory: --out DIR");
  const std::filesystem::path own = std::filesystem::path(config.out) / "config.toml";
  read_config(command, options.resume ? own : std::filesystem::path(options.config_file), config);
  config.validate();
  lab::check_effect(config);
  constexpr int64_t kMostTokens = lab::GenerateOptions::kMostTokens;
  GLUON_CHECK(options.sample >= 0 && options.sample <= kMostTokens, "--sample must be in 0..", kMostTokens, ", got ",
              options.sample);
  GLUON_CHECK(options.sample == 0 || lab::is_language_model(config.model), "--sample: ", config.model,
              " is not a language model");
  GLUON_CHECK(options.rank_timeout >= 1e-3 && options.rank_timeout <= 1e6,
              "--rank-timeout must be in 0.001..1e6 seconds, got ", options.rank_timeout);
  GLUON_CHECK(options.ranks > 0 || environment.given || command.get_option("--rank-timeout")->empty(),
              "--rank-timeout has no effect without --ranks, got ", options.rank_timeout);
  GLUON_CHECK(!config.device.starts_with("cuda:") || (options.ranks <= 1 && !environment.given), "--device ",
              config.device, " is for one process; each of several ranks takes its own GPU with --device cuda");
  if (!options.resume && !config.out.empty()) lab::RunDirectory::check_free(config.out);
  if (options.report) (void)lab::page_template();  // fails before the training if this build has no page
  if (options.ranks > 1 && environment.size == 1 && !environment.given) {
    const auto grace = std::min<std::chrono::milliseconds>(kMaxGrace, seconds(options.rank_timeout) + kMessageTime);
    const int code = lab::launch_ranks(options.ranks, grace);
    if (code != 0) throw CLI::RuntimeError(code);
    return;
  }
  lab::end_with_launcher();
  const CollectivePtr collective = meet_ranks(options, environment);
  config.parts = config.parts_for(collective ? collective->size() : 0);
  const int code = collective ? train_as_rank(options, collective) : train_here(options, nullptr);
  if (code != 0) throw CLI::RuntimeError(code);
}

}  // namespace

void add_train(CLI::App& app) {
  CLI::App* command = app.add_subcommand("train", "Train a model; without --data on Gluon's own sources");
  auto options = std::make_shared<TrainCommand>();
  add_train_options(*command, options->config);
  command->option_defaults()->group("Run");
  CLI::Option* file =
      command
          ->add_option("--config", options->config_file, "TOML file with the same keys; flags on the command line win")
          ->check(given_path());
  command->add_option("--out", options->config.out, "Run directory (default: runs/MODEL-PRESET-N)")
      ->check(given_path());
  command->add_option("--sample", options->sample, "Tokens of text to print at the end (language models)");
  command->add_flag("--resume", options->resume, "Continue the run in --out with its own config")->excludes(file);
  command->add_flag("--report", options->report, "Write the page RUN/report.html at the end");
  command
      ->add_option("--ranks", options->ranks,
                   "Processes that share each batch and the optimizer; started here unless a launcher started them")
      ->check(CLI::Range(1, 1024));
  command->add_option("--rank-timeout", options->rank_timeout, "Seconds to wait for a rank that does not answer")
      ->capture_default_str();
  command->add_flag("--tensorboard", options->tensorboard, "Write scalars for TensorBoard into the run directory");
  command->callback([command, options] { train(*command, *options); });
}

}  // namespace gluon::cli
