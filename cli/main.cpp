#include <ATen/Parallel.h>
#include <malloc.h>
#include <sched.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <optional>
#include <set>
#include <string>

#include "cli/commands.h"
#include "cli/text_output.h"
#include "gluon/core/check.h"
#include "gluon/core/openmp_spinning.h"
#include "gluon/core/printable.h"
#include "gluon/distributed/collective.h"
#include "gluon/version.h"
#include "lab/ranks/launcher.h"
#include "lab/train/error_text.h"

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

// What is wrong with the text of a whole number. CLI11 clamps what does not fit its type, and reads 010 as 8.
template <typename Number> std::string whole_number_error(const std::string& text) {
  using Limits = std::numeric_limits<Number>;
  const std::string digits = text.starts_with('-') || text.starts_with('+') ? text.substr(1) : text;
  const bool decimal = !digits.empty() && digits.find_first_not_of("0123456789") == std::string::npos;
  if (!decimal || (digits.size() > 1 && digits[0] == '0')) {
    return gluon::join("expected a whole number without leading zeros, got '", text, "'");
  }
  Number value{};
  const std::string_view given = std::string_view(text).substr(text[0] == '+' ? 1 : 0);
  const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), value);
  const bool fits = error == std::errc() && end == given.data() + given.size();
  return fits ? "" : gluon::join("must be in ", Limits::min(), "..", Limits::max(), ", got ", text);
}

std::string number_error(const std::string& text) {
  char* end = nullptr;
  errno = 0;
  const double value = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || *end != '\0') return gluon::join("expected a number, got '", text, "'");
  // Where a value of 0 has a meaning of its own, one that rounds to it must not have it.
  const bool rounds_to_zero = errno == ERANGE && std::abs(value) < 1;
  return rounds_to_zero ? gluon::join("is too near to 0 for a number, got ", text) : "";
}

std::string switch_error(const std::string& text) {
  static const std::set<std::string> kSwitches = {"0", "1", "true", "false", "on", "off", "yes", "no"};
  return kSwitches.contains(text) ? ""
                                  : gluon::join("expected 0, 1, true, false, on, off, yes or no, got '", text, "'");
}

// Makes every option of `app` and its subcommands that takes a number reject what is none, such as an empty value,
// which CLI11 reads as 0.
void check_numbers(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    const std::string type = option->get_type_name();
    if (type.starts_with("INT")) option->check(CLI::Validator(whole_number_error<int64_t>, ""));
    if (type.starts_with("UINT")) option->check(CLI::Validator(whole_number_error<uint64_t>, ""));
    if (type.starts_with("FLOAT")) option->check(CLI::Validator(number_error, ""));
    if (type.starts_with("BOOLEAN") && option->get_expected_min() > 0) {
      option->check(CLI::Validator(switch_error, ""));
    }
  }
  for (CLI::App* command : app.get_subcommands({})) check_numbers(*command);
}

// One sentence, however much the message quotes.
void print_error(const std::string& text) {
  constexpr std::size_t kLongest = 2000;
  const std::string shown = gluon::printable(text);
  std::cerr << "gluon: " << shown.substr(0, kLongest) << (shown.size() > kLongest ? "..." : "") << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  keep_freed_memory();
  const gluon::cli::TextOutput text_output;
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond the limit on file sizes fails and is reported like a full disk
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
                         add_theory, add_reproduce, add_bench}) {
    add(app);
  }
  check_numbers(app);
  app.failure_message([](const CLI::App* /*app*/, const CLI::Error& error) {
    print_error(error.what());
    return std::string();
  });
  int code = 0;
  try {
    app.parse(argc, argv);
    if (app.get_subcommands().empty()) throw CLI::CallForHelp();
  } catch (const CLI::RuntimeError& error) {  // the reason has been printed
    code = error.get_exit_code();
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const gluon::RankLost& error) {
    print_error(error.what());
    std::_Exit(gluon::lab::kRankLostCode);  // threads may still wait for the lost rank
  } catch (const std::exception& error) {
    print_error(gluon::lab::error_text(error));
    return gluon::lab::user_error(error).empty() ? 1 : 2;
  }
  if (!std::cout.flush() || std::fflush(stdout) != 0) {
    print_error("cannot write to the standard output");
    return 2;
  }
  return code;
}
