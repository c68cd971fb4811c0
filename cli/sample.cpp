#include <unistd.h>

#include <iostream>
#include <memory>

#include "cli/commands.h"
#include "cli/text_output.h"
#include "cli/train_options.h"
#include "gluon/core/check.h"
#include "lab/train/config_fields.h"
#include "lab/train/sample.h"

namespace gluon::cli {

void add_sample(CLI::App& app) {
  CLI::App* command = app.add_subcommand("sample", "Generate text with a trained language model");
  auto run = std::make_shared<std::string>();
  auto options = std::make_shared<lab::SampleOptions>();
  command->add_option("run", *run, "Run directory")->required()->check(given_path());
  command->add_option("--prompt", options->prompt, "Text to continue")->capture_default_str();
  command->add_option("--count", options->count, "Tokens to generate")->capture_default_str();
  command->add_option("--temperature", options->temperature, "0: always the most likely token")->capture_default_str();
  command->add_option("--top-k", options->top_k, "Only the k most likely tokens (0: all)")->capture_default_str();
  command->add_option("--seed", options->seed, "Seed of the random choices")->capture_default_str();
  command->callback([run, options] {
    const lab::RunSample sampled = lab::sample_run(lab::read_run_config(*run), *options);
    if (!sampled.warning.empty()) std::cerr << "gluon: " << sampled.warning << '\n';
    // On a terminal a model's control characters would be obeyed; another program gets the bytes.
    std::ostream& out = isatty(STDOUT_FILENO) == 1 ? std::cout : raw_output();
    out << options->prompt << sampled.text << '\n';
    GLUON_CHECK(out.flush(), "cannot write to the standard output");
  });
}

}  // namespace gluon::cli
