#include <ATen/Parallel.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <memory>
#include <thread>

#include "cli/commands.h"
#include "cli/fit_options.h"
#include "cli/stop_on_signal.h"
#include "gluon/core/check.h"
#include "lab/report/watch_server.h"

namespace gluon::cli {
namespace {

struct WatchCommand {
  std::vector<std::string> paths;
  lab::WatchOptions server;
  FitOptions fit;
};

// The training has the machine: one thread, and that gives way.
void give_way() {
  at::set_num_threads(1);
  errno = 0;
  if (nice(10) == -1 && errno != 0) std::cerr << "gluon: watch runs at the priority of the training\n";
}

void watch(const WatchCommand& command) {
  command.server.validate();
  lab::WatchAnswers answers({command.paths.begin(), command.paths.end()}, command.fit, command.server.token);
  give_way();
  const std::atomic<bool>& stop = stop_on_signal();
  const lab::WatchServer server(answers, command.server);
  const std::string& host = command.server.host;
  std::cout << "watching at http://" << (host.find(':') == std::string::npos ? host : "[" + host + "]") << ':'
            << server.port() << '/' << (command.server.token.empty() ? "" : "?token=" + command.server.token)
            << "  (Ctrl-C ends it; the run goes on)" << std::endl;
  while (!stop) std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

}  // namespace

void add_watch(CLI::App& app) {
  CLI::App* command = app.add_subcommand("watch", "Serve the page of a run on this machine while it goes on");
  auto options = std::make_shared<WatchCommand>();
  command->add_option("runs", options->paths, "Run directories, or whatever `gluon report` reads")
      ->required();
  command->add_option("--port", options->server.port, "Port; 0 takes a free one")->capture_default_str();
  command
      ->add_option("--host", options->server.host, "Address to listen on; beyond loopback only with --token")
      ->capture_default_str();
  command->add_option("--token", options->server.token, "What a request has to know (?token=... or Bearer)");
  add_fit_options(*command, options->fit);
  command->callback([options] { watch(*options); });
}

}  // namespace gluon::cli
