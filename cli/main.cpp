#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <malloc.h>
#include <sched.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <limits>
#include <new>
#include <optional>

#include "cli/commands.h"
#include "gluon/core/check.h"
#include "gluon/core/openmp_spinning.h"
#include "gluon/core/printable.h"
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

// What is wrong with a whole number that does not fit its type.
template <typename Number, auto parse> std::string range_error(const std::string& text) {
  using Limits = std::numeric_limits<Number>;
  errno = 0;
  (void)parse(text.c_str(), nullptr, 0);
  const bool fits = errno != ERANGE && (Limits::is_signed || !text.starts_with('-'));  // strtoull accepts a minus
  return fits ? "" : gluon::join("must be in ", Limits::min(), "..", Limits::max(), ", got ", text);
}

// Makes every integer option of `app` and its subcommands reject numbers that do not fit its type, which CLI11 clamps
// without an error.
void check_whole_numbers(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    const std::string type = option->get_type_name();
    if (type.starts_with("INT")) option->check(CLI::Validator(range_error<int64_t, std::strtoll>, ""));
    if (type.starts_with("UINT")) option->check(CLI::Validator(range_error<uint64_t, std::strtoull>, ""));
  }
  for (CLI::App* command : app.get_subcommands({})) check_whole_numbers(*command);
}

}  // namespace

std::string gluon::cli::user_error(const std::exception& error) {
  const std::string text = error.what(), first = text.substr(0, text.find('\n'));
  if (dynamic_cast<const InputError*>(&error) != nullptr) return text;
  if (dynamic_cast<const std::filesystem::filesystem_error*>(&error) != nullptr) return text;
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return "out of memory";
  if (const auto* gpu = dynamic_cast<const c10::OutOfMemoryError*>(&error)) {
    const std::string what = gpu->what_without_backtrace();
    return "out of GPU memory: " + what.substr(0, what.find('\n'));
  }
  const std::size_t memory = first.find("can't allocate memory");  // LibTorch has no type for it
  return memory == std::string::npos ? "" : "out of memory: " + first.substr(memory);
}

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
  using namespace gluon::cli;
  for (const auto add : {add_train, add_sweep, add_tune, add_eval, add_sample, add_data, add_fit, add_report, add_watch,
                         add_theory, add_bench}) {
    add(app);
  }
  check_whole_numbers(app);
  try {
    app.parse(argc, argv);
    if (app.get_subcommands().empty()) throw CLI::CallForHelp();
  } catch (const CLI::RuntimeError& error) {  // another process has printed the reason
    return error.get_exit_code();
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const gluon::RankLost& error) {
    std::cerr << "gluon: " << error.what() << std::endl;
    std::_Exit(gluon::lab::kRankLostCode);  // threads may still wait for the lost rank
  } catch (const std::exception& error) {
    if (const std::string for_user = user_error(error); !for_user.empty()) {
      std::cerr << "gluon: " << gluon::printable(for_user) << '\n';
      return 2;
    }
    // An error inside a library: the first line is the message, the rest a backtrace.
    const std::string text = error.what();
    std::cerr << "gluon: internal error: " << gluon::printable(text.substr(0, text.find('\n'))) << '\n';
    return 1;
  }
  if (!std::cout.flush() || std::fflush(stdout) != 0) {
    std::cerr << "gluon: cannot write to the standard output\n";
    return 2;
  }
  return 0;
}
