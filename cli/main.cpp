#include <ATen/Parallel.h>
#include <malloc.h>
#include <sched.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>

#include "cli/commands.h"
#include "cli/out_of_memory.h"
#include "cli/whole_numbers.h"
#include "gluon/core/check.h"
#include "gluon/core/openmp_spinning.h"
#include "gluon/distributed/collective.h"
#include "gluon/version.h"
#include "lab/ranks/launcher.h"

namespace {

constexpr int kMaxThreads = 4096;

// The cores this process may run on; LibTorch's default miscounts physical packages on some machines.
int available_cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

// torchrun sets OMP_NUM_THREADS for its processes. Of a list, for nested parallelism, the first number counts.
int default_threads() {
  const char* given = std::getenv("OMP_NUM_THREADS");
  const int threads = given == nullptr ? 0 : std::atoi(given);
  return threads >= 1 && threads <= kMaxThreads ? threads : available_cores();
}

// A training step frees and allocates the same large blocks again and again. By default glibc returns them to the
// kernel in between, which costs 5..9 % of a step in page faults (nanogpt-tiny, 2 cores).
void keep_freed_memory() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
}

}  // namespace

int main(int argc, char** argv) {
  keep_freed_memory();
  CLI::App app{"Gluon: layer-wise LMO optimizers (Muon, Scion and relatives)", "gluon"};
  app.set_version_flag("--version", gluon::kVersion);
  app.fallthrough();
  app.require_subcommand(0, 1);  // a run may be named like a command: gluon report sweep
  int threads = default_threads();
  app.add_option("--threads", threads, "CPU threads")->capture_default_str()->check(CLI::Range(1, kMaxThreads));
  std::optional<gluon::SpinningLimit> spinning;
  app.parse_complete_callback([&] {
    at::set_num_threads(threads);
    spinning.emplace(threads);
  });
  gluon::cli::add_train(app);
  gluon::cli::add_sweep(app);
  gluon::cli::add_tune(app);
  gluon::cli::add_eval(app);
  gluon::cli::add_sample(app);
  gluon::cli::add_data(app);
  gluon::cli::add_fit(app);
  gluon::cli::add_report(app);
  gluon::cli::add_watch(app);
  gluon::cli::add_theory(app);
  gluon::cli::add_bench(app);
  gluon::cli::check_whole_numbers(app);
  try {
    app.parse(argc, argv);
    if (app.get_subcommands().empty()) throw CLI::CallForHelp();
  } catch (const CLI::RuntimeError& error) {  // another process has printed the reason
    return error.get_exit_code();
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const gluon::InputError& error) {
    std::cerr << "gluon: " << error.what() << '\n';
    return 2;
  } catch (const gluon::RankLost& error) {
    std::cerr << "gluon: " << error.what() << std::endl;
    std::_Exit(gluon::lab::kRankLostCode);  // threads may still wait for the lost rank
  } catch (const std::filesystem::filesystem_error& error) {
    std::cerr << "gluon: " << error.what() << '\n';
    return 2;
  } catch (const std::exception& error) {
    if (const std::string memory = gluon::cli::out_of_memory(error); !memory.empty()) {
      std::cerr << "gluon: " << memory << '\n';
      return 2;
    }
    // An error inside a library: the first line is the message, the rest a backtrace.
    const std::string text = error.what();
    std::cerr << "gluon: internal error: " << text.substr(0, text.find('\n')) << '\n';
    return 1;
  }
  if (!std::cout.flush() || std::fflush(stdout) != 0) {
    std::cerr << "gluon: cannot write to the standard output\n";
    return 2;
  }
  return 0;
}
