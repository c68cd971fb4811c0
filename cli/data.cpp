#include <ATen/Parallel.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <memory>
#include <vector>

#include "cli/commands.h"
#include "cli/train_options.h"
#include "gluon/core/check.h"
#include "gluon/core/printable.h"
#include "lab/data/input_file.h"
#include "lab/data/token_shard.h"
#include "lab/data/tokenizer.h"

namespace gluon::cli {
namespace {

struct TokenizeOptions {
  std::string vocab;
  std::string out;
  std::vector<std::string> files;
};

// "wikipedia.txt.xz" -> "wikipedia.bin"
std::filesystem::path shard_name(std::filesystem::path file) {
  if (file.extension() == ".xz") file.replace_extension();
  return file.filename().replace_extension(".bin");
}

void tokenize(const TokenizeOptions& options) {
  const lab::Tokenizer tokenizer(options.vocab);
  std::error_code error;
  std::filesystem::create_directories(options.out, error);
  GLUON_CHECK(!error, "tokenize: cannot create ", options.out, ": ", error.message());
  const bool live = isatty(STDERR_FILENO) == 1;
  for (const std::string& pattern : options.files) {
    for (const auto& file : lab::expand(pattern)) {
      const std::filesystem::path shard = options.out / shard_name(file);
      GLUON_CHECK(!std::filesystem::exists(shard), "tokenize: ", shard.string(), " exists already");
      const std::string text = lab::read_file(file);
      const auto start = std::chrono::steady_clock::now();
      const auto tokens = tokenizer.encode(text, at::get_num_threads(), [&](int64_t bytes) {
        if (live) std::fprintf(stderr, "\r%s %3.0f %%", printable(file.string()).c_str(), 100.0 * bytes / text.size());
      });
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      if (live) std::fprintf(stderr, "\r\033[K");
      lab::write_token_shard(shard, tokens);
      std::cout << file.string() << ": " << text.size() << " bytes -> " << tokens.size() << " tokens in "
                << shard.string() << " (" << std::fixed << std::setprecision(1) << text.size() / seconds / 1e6
                << " MB/s)\n";
    }
  }
}

}  // namespace

void add_data(CLI::App& app) {
  CLI::App* data = app.add_subcommand("data", "Prepare training data");
  data->callback([data] { GLUON_CHECK(!data->get_subcommands().empty(), "data: expected the command tokenize"); });
  CLI::App* command =
      data->add_subcommand("tokenize", "Encode text files (also .xz) as token shards with GPT-2's vocabulary");
  auto options = std::make_shared<TokenizeOptions>();
  command->add_option("--vocab", options->vocab, "Folder with encoder.json and vocab.bpe")
      ->required()
      ->check(given_path());
  command->add_option("--out", options->out, "Folder for the .bin files")->required()->check(given_path());
  command->add_option("files", options->files, "Files, folders or patterns")->required();
  command->callback([options] { tokenize(*options); });
}

}  // namespace gluon::cli
