#include <filesystem>
#include <iostream>
#include <memory>

#include "cli/commands.h"
#include "cli/train_options.h"
#include "gluon/core/atomic_file.h"
#include "gluon/core/check.h"
#include "gluon/core/printable.h"
#include "lab/report/figures.h"
#include "lab/report/page.h"
#include "lab/report/report_json.h"
#include "lab/report/text_report.h"

namespace gluon::cli {
namespace {

namespace fs = std::filesystem;

struct ReportCommand {
  std::vector<std::string> paths;
  std::string out = "report.html";
  std::string json;
  std::string figures;
  std::string figure_width = "page";
  std::string tensorboard;
  bool text = false;
  FitOptions fit;
};

// Checks a file to write before anything is read.
void check_target(const std::string& flag, const fs::path& path) {
  GLUON_CHECK(!fs::is_directory(path), "report: ", flag, " must be a file, got the folder ", path.string());
  const fs::path parent = path.has_parent_path() ? path.parent_path() : ".";
  GLUON_CHECK(fs::is_directory(parent), "report: ", flag, " ", path.string(), ": folder ", parent.string(),
              " does not exist");
}

void report(const ReportCommand& command, bool out_given) {
  const bool page =
      !command.text && (out_given || (command.json.empty() && command.figures.empty() && command.tensorboard.empty()));
  if (page) {
    check_target("--out", command.out);
    const std::string extension = fs::path(command.out).extension().string();
    GLUON_CHECK(extension == ".html" || extension == ".htm", "report: --out must end in .html, got ", command.out);
    (void)lab::page_template();  // fail before reading anything when the program has no page
  }
  if (!command.json.empty()) {
    check_target("--json", command.json);
    GLUON_CHECK(fs::path(command.json).extension() == ".json", "report: --json must end in .json, got ", command.json);
    for (const char* file : {"facts.json", "status.json"}) {
      GLUON_CHECK(fs::path(command.json).filename() != file, "report: --json must not overwrite a run's ", file,
                  ", got ", command.json);
    }
  }
  const lab::FigureWidth width = lab::parse_figure_width(command.figure_width);
  const std::vector<fs::path> paths(command.paths.begin(), command.paths.end());
  const lab::ReportData data = lab::collect_report(paths, command.fit);
  for (const std::string& sentence : data.skipped) std::cerr << "skipped: " << printable(sentence) << '\n';
  if (command.text) std::cout << lab::text_report(data);
  if (!command.figures.empty()) {
    const std::size_t written = lab::write_figures(data, command.figures, width);
    std::cout << "wrote " << written << " figures to " << command.figures << '\n';
  }
  if (!command.tensorboard.empty()) {
    const std::size_t written = lab::write_tensorboard(data, command.tensorboard);
    std::cout << "wrote " << written << (written == 1 ? " run" : " runs") << " to " << command.tensorboard
              << "; tensorboard --logdir " << command.tensorboard << " shows them\n";
  }
  if (!page && command.json.empty()) return;
  const std::string json = lab::report_json(data);
  if (!command.json.empty()) write_text_atomically(command.json, json + "\n");
  if (!page) return;
  write_text_atomically(command.out, lab::page_with(json));
  std::size_t layers = 0;
  for (const lab::ReportRun& run : data.runs) layers += run.layers.size();
  std::cout << "wrote " << command.out << ": " << data.runs.size() << (data.runs.size() == 1 ? " run, " : " runs, ")
            << layers << " layers, " << data.sweeps.size() << (data.sweeps.size() == 1 ? " sweep" : " sweeps")
            << "; open it in a browser\n";
}

}  // namespace

void add_report(CLI::App& app) {
  CLI::App* command = app.add_subcommand("report", "Write a page that shows runs: losses, smoothness, radii, sweeps");
  auto options = std::make_shared<ReportCommand>();
  command
      ->add_option(
          "runs", options->paths,
          "Run directories, sweeps, folders that hold runs and sweeps, smoothness.csv files or logs of the paper's "
          "authors")
      ->required()
      ->check(given_path());
  CLI::Option* out =
      command->add_option("--out", options->out, "The page to write")->capture_default_str()->check(given_path());
  command->add_flag("--text", options->text, "Print tables with sparklines instead")->excludes(out);
  command->add_option("--json", options->json, "Write the page's data to this file; writes the page only with --out")
      ->check(given_path());
  command
      ->add_option("--figures", options->figures,
                   "Write each chart as SVG and CSV into this new folder; writes the page only with --out")
      ->check(given_path());
  command
      ->add_option("--figure-width", options->figure_width,
                   "Of the figures: column (3.3 in, one of two columns) or page (6.9 in)")
      ->capture_default_str()
      ->needs("--figures");
  command
      ->add_option("--tensorboard", options->tensorboard,
                   "Write scalars for TensorBoard into this new folder; writes the page only with --out")
      ->check(given_path());
  add_fit_options(*command, options->fit);
  command->callback([options, out] { report(*options, out->count() > 0); });
}

}  // namespace gluon::cli
