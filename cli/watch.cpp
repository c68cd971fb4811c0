#include <ATen/Parallel.h>
#include <malloc.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <memory>
#include <thread>

#include "cli/commands.h"
#include "cli/stop_on_signal.h"
#include "cli/train_options.h"
#include "gluon/core/check.h"
#include "gluon/core/printable.h"
#include "lab/report/watch_server.h"

namespace gluon::cli {
namespace {

struct WatchCommand {
  std::vector<std::string> paths;
  lab::WatchOptions server;
  FitOptions fit;
};

// One thread at low priority, so that the training is not slowed down. The threads share one heap, which malloc_trim()
// can empty, unlike the heaps of single threads.
void be_modest() {
  at::set_num_threads(1);
  mallopt(M_ARENA_MAX, 1);
  errno = 0;
  if (nice(10) == -1 && errno != 0)
    std::cerr << "gluon: cannot lower the priority of watch; it may slow down the training\n";
}

void watch(const WatchCommand& command) {
  command.server.validate();
  lab::WatchAnswers answers({command.paths.begin(), command.paths.end()}, command.fit, command.server.token);
  be_modest();
  const std::atomic<bool>& stop = stop_on_signal();
  const lab::WatchServer server = lab::serve(answers, command.server);
  const std::string& host = command.server.host;
  std::cout << "watching at http://" << (host.find(':') == std::string::npos ? host : "[" + host + "]") << ':'
            << server.port << '/' << (command.server.token.empty() ? "" : "?token=" + command.server.token)
            << "  (Ctrl-C stops watching, not the run)" << std::endl;
  const std::vector<std::filesystem::path> paths(command.paths.begin(), command.paths.end());
  for (const lab::SkippedSource& one : lab::find_sources(paths).skipped) {
    std::cout << (one.given ? "waiting for a run: " : "skipped: ") << printable(one.sentence()) << std::endl;
  }
  while (!stop) std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

}  // namespace

void add_watch(CLI::App& app) {
  CLI::App* command = app.add_subcommand("watch", "Serve the page of runs on this machine while they train");
  auto options = std::make_shared<WatchCommand>();
  command
      ->add_option("runs", options->paths,
                   "Folders of runs, which may still be empty, or any other path that `gluon report` accepts")
      ->required()
      ->check(given_path());
  command->add_option("--port", options->server.port, "Port; 0 takes a free one")->capture_default_str();
  command->add_option("--host", options->server.host, "Address to listen on; beyond loopback only with --token")
      ->capture_default_str();
  command->add_option("--token", options->server.token, "Secret that requests must carry (?token=... or Bearer)")
      ->check(CLI::Validator(
          [](const std::string& token) { return token.empty() ? "expected a secret, got an empty one" : ""; }, ""));
  add_fit_options(*command, options->fit);
  command->callback([options] { watch(*options); });
}

}  // namespace gluon::cli
