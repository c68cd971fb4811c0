#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <memory>

#include "cli/commands.h"
#include "cli/stop_on_signal.h"
#include "cli/text_output.h"
#include "cli/train_options.h"
#include "experiments/studies.h"
#include "gluon/core/atomic_file.h"
#include "gluon/core/check.h"

namespace gluon::cli {
namespace {

using lab::Study;

struct ReproduceCommand {
  std::vector<std::string> names;
  std::string data = "data";
  std::string out;
  bool small = false;
  std::string device = "cpu";
};

constexpr const char* kAll = "all";
constexpr const char* kList = "list";
constexpr const char* kData = "data";

void print_list() {
  for (const Study& study : experiments::studies()) print_row({20, 0}, {study.name, study.title});
}

// In the order of the list, each once.
std::vector<const Study*> chosen(const std::vector<std::string>& names) {
  const auto known = [](const std::string& name) {
    return std::ranges::any_of(experiments::studies(), [&](const Study& study) { return study.name == name; });
  };
  for (const std::string& name : names) {
    GLUON_CHECK(name != kList && name != kData, "reproduce: '", name, "' stands alone, got it beside other names");
    GLUON_CHECK(name == kAll || known(name), "reproduce: unknown experiment '", name,
                "'; gluon reproduce list prints their names");
  }
  const bool all = std::ranges::count(names, kAll) > 0;
  std::vector<const Study*> studies;
  for (const Study& study : experiments::studies()) {
    if (all || std::ranges::count(names, study.name) > 0) studies.push_back(&study);
  }
  return studies;
}

std::string command_line(const ReproduceCommand& command, const std::string& name) {
  return join("gluon reproduce ", name, command.small ? " --small" : "",
              command.device == "cpu" ? "" : " --device " + command.device, " --data DATA --out OUT");
}

void prepare_data(lab::Workbench& bench) {
  std::string prepared;
  try {
    prepared = bench.language().data;
  } catch (const lab::MissingMaterial& error) {
    throw InputError(join("reproduce: data ", error.what()));
  }
  std::cout << (prepared.empty() ? "nothing to prepare" : "prepared " + prepared) << '\n';
}

// The page of a study that ran; nothing when `all` skips it.
std::string run_study(const Study& study, const ReproduceCommand& command, lab::Workbench& bench) {
  std::cout << "\n== " << study.name << ": " << study.title << std::endl;
  lab::StudyResult result;
  try {
    result = study.run(bench);
  } catch (const lab::MissingMaterial& error) {
    const std::string sentence = join("reproduce: ", study.name, " ", error.what());
    if (std::ranges::count(command.names, study.name) > 0) throw InputError(sentence);
    std::cout << "skipped: " << sentence << std::endl;
    return {};
  }
  const std::filesystem::path folder = std::filesystem::path(command.out) / study.name;
  const std::string line = command_line(command, study.name);
  lab::write_study(study, result, line, folder);
  std::cout << '\n' << lab::findings_text(result) << "wrote " << (folder / "study.md").string() << std::endl;
  return lab::study_page(study, result, line);
}

void reproduce(const ReproduceCommand& command) {
  if (command.names == std::vector<std::string>{kList}) return print_list();
  lab::TrainConfig{.device = command.device}.validate();
  const bool data_only = command.names == std::vector<std::string>{kData};
  const std::vector<const Study*> studies = data_only ? std::vector<const Study*>{} : chosen(command.names);
  GLUON_CHECK(!command.out.empty(), "reproduce: expected a folder for the results: --out DIR");
  lab::Progress progress(raw_output(), isatty(STDOUT_FILENO) == 1);
  const auto announce = [](const std::string& line) { std::cout << line << std::endl; };
  lab::Workbench bench({.data = command.data, .out = command.out, .small = command.small, .device = command.device},
                       progress, announce, stop_on_signal());
  std::string pages;
  std::size_t written = 0;
  try {
    if (data_only) prepare_data(bench);
    for (const Study* study : studies) {
      const std::string page = run_study(*study, command, bench);
      if (page.empty()) continue;
      pages += (pages.empty() ? "" : "\n") + page;
      ++written;
    }
  } catch (const lab::Stopped&) {
    std::cout << "\nstopped; run the same command again to continue\n";
    if (stopped_code() != 0) throw CLI::RuntimeError(stopped_code());
    return;
  }
  if (data_only) return;
  GLUON_CHECK(written > 0, "reproduce: no experiment could run without its data; --data names the folder, got ",
              command.data);
  if (studies.size() == 1) return;
  write_text_atomically(std::filesystem::path(command.out) / "reproduction.md", pages);
  std::cout << "\nwrote " << written << " experiments to " << command.out << "/reproduction.md\n";
}

}  // namespace

void add_reproduce(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("reproduce", "Repeat the paper's experiments: runs, tables, figures, verdicts");
  auto options = std::make_shared<ReproduceCommand>();
  command
      ->add_option("names", options->names, "Names from `gluon reproduce list`, or all; data: only prepare the corpus")
      ->required();
  command->add_flag("--small", options->small, "Models and runs for a laptop instead of the paper's sizes");
  command
      ->add_option("--data", options->data,
                   "Folder with text/, gpt2/, cifar10/ and paper-logs/ (docs/reproduction.md); without text, --small "
                   "trains on Gluon's own sources")
      ->capture_default_str()
      ->check(given_path());
  command->add_option("--out", options->out, "Folder of runs and results; the same command continues there")
      ->check(given_path());
  command->add_option("--device", options->device, "cpu, cuda or cuda:N")->capture_default_str();
  command->callback([options] { reproduce(*options); });
}

}  // namespace gluon::cli
