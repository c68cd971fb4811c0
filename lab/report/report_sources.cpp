#include "lab/report/report_sources.h"

#include <string.h>

#include <algorithm>
#include <map>
#include <set>

#include "gluon/core/check.h"

namespace gluon::lab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFiles[] = {"config.toml", "status.json", "facts.json", "log.csv", "smoothness.csv", "sweep.csv"};
constexpr const char* kHoldsNothing = "holds neither a run (config.toml) nor a sweep (sweep.csv)";
constexpr std::size_t kMostEntries = 10'000;  // of a folder that are looked at
constexpr std::size_t kMostSkipped = 50;      // of them that are named when they are skipped

// Nothing to see is no error: a folder may vanish while it is looked at.
bool holds(const fs::path& folder, const char* file) {
  std::error_code ignored;
  return fs::exists(folder / file, ignored);
}

bool holds_sweep(const fs::path& folder) { return holds(folder, "sweep.csv"); }
bool holds_run(const fs::path& folder) { return holds(folder, "config.toml") || holds(folder, "smoothness.csv"); }

std::string short_name(const fs::path& path) {
  const fs::path whole = fs::absolute(path).lexically_normal();
  const fs::path last = whole.has_filename() ? whole.filename() : whole.parent_path().filename();
  if (last == "smoothness.csv" || last == "sweep.csv") return whole.parent_path().filename().string();
  return last.string();
}

void name_sources(std::vector<ReportSource>& sources) {
  std::map<std::string, int> uses;
  for (const ReportSource& source : sources) ++uses[short_name(source.path)];
  for (ReportSource& source : sources) {
    source.name = short_name(source.path);
    if (uses[source.name] > 1) source.name = source.path.lexically_normal().string();
  }
}

// run-2 comes before run-10.
template <typename Source> bool by_path(const Source& a, const Source& b) {
  return strverscmp(a.path.c_str(), b.path.c_str()) < 0;
}

// Keeps those that were written to last.
std::size_t keep_newest(std::vector<ReportSource>& found) {
  if (found.size() <= kMostFound) return 0;
  const auto time = [](const ReportSource& source) {
    std::error_code gone;
    const auto written = fs::last_write_time(source.path, gone);
    return gone ? fs::file_time_type::min() : written;
  };
  std::vector<std::pair<fs::file_time_type, std::size_t>> order;
  for (std::size_t i = 0; i < found.size(); ++i) order.emplace_back(time(found[i]), i);
  std::ranges::sort(order, std::greater());
  std::vector<ReportSource> kept;
  for (std::size_t i = 0; i < kMostFound; ++i) kept.push_back(std::move(found[order[i].second]));
  const std::size_t left_out = found.size() - kept.size();
  found = std::move(kept);
  return left_out;
}

// Why a folder in a folder of runs is skipped; empty when it is not.
std::string refusal_of_entry(const fs::directory_entry& entry, bool sweep) {
  std::error_code gone;
  if (entry.is_symlink(gone)) return "is a link, which is not followed inside a folder; give its target by name";
  if (!sweep && !holds_run(entry.path())) return kHoldsNothing;
  return refusal_of(entry.path());
}

// The runs and sweeps in `folder`; the reasons of the others go to `skipped`.
std::vector<ReportSource> search(const fs::path& folder, std::vector<SkippedSource>& skipped) {
  std::vector<ReportSource> found;
  std::vector<SkippedSource> refused;
  std::error_code error;
  std::size_t entries = 0;
  for (auto entry = fs::directory_iterator(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    if (++entries > kMostEntries) {
      skipped.push_back({folder, join("has more than ", kMostEntries, " entries; the rest is not looked at"), false});
      break;
    }
    std::error_code gone;
    const fs::path& path = entry->path();
    if (path.filename().native().starts_with('.') || !entry->is_directory(gone)) continue;
    const bool sweep = holds_sweep(path);
    if (const std::string why = refusal_of_entry(*entry, sweep); !why.empty()) {
      refused.push_back({path, why, false});
    } else {
      found.push_back({path, {}, sweep, false});
    }
  }
  if (error) skipped.push_back({folder, join("cannot be read: ", error.message()), false});
  if (const std::size_t left_out = keep_newest(found); left_out > 0) {
    skipped.push_back({folder,
                       join("holds ", kMostFound + left_out, " runs and sweeps; only the ", kMostFound,
                            " that were written to last are shown"),
                       false});
  }
  std::ranges::sort(found, by_path<ReportSource>);
  std::ranges::sort(refused, by_path<SkippedSource>);
  if (refused.size() > kMostSkipped) {
    skipped.push_back({folder, join("holds ", refused.size() - kMostSkipped, " more folders without a run"), false});
    refused.resize(kMostSkipped);
  }
  std::ranges::move(refused, std::back_inserter(skipped));
  return found;
}

// Adds what `path`, given by name, stands for; returns why it stands for nothing.
std::string add_given(const fs::path& path, ReportSources& result) {
  std::error_code error;
  const bool folder = fs::is_directory(path, error);
  if (!folder) {
    if (!fs::exists(path, error)) return "does not exist";
    if (!fs::is_regular_file(path, error)) return "is neither a folder nor a regular file";
  }
  const bool sweep = folder ? holds_sweep(path) : path.filename() == "sweep.csv";
  if (!folder || sweep || holds_run(path)) {
    result.sources.push_back({path, {}, sweep, true});
    return {};
  }
  const std::size_t before = result.skipped.size();
  std::vector<ReportSource> found = search(path, result.skipped);
  if (found.empty()) {
    const auto refused =
        std::find_if(result.skipped.begin() + static_cast<std::ptrdiff_t>(before), result.skipped.end(),
                     [](const SkippedSource& one) { return one.why != kHoldsNothing; });
    if (refused == result.skipped.end()) return join(kHoldsNothing, ", and no folder in it does");
    return "holds nothing that can be shown: " + refused->sentence();
  }
  std::ranges::move(found, std::back_inserter(result.sources));
  return {};
}

}  // namespace

std::string refusal_of(const fs::path& folder) {
  for (const char* file : kFiles) {
    std::error_code error;
    const fs::file_type type = fs::symlink_status(folder / file, error).type();
    if (type == fs::file_type::symlink) return join("is left out: its ", file, " is a link");
    if (type != fs::file_type::regular && type != fs::file_type::not_found)
      return join("is left out: its ", file, " is not a regular file");
  }
  return {};
}

ReportSources find_sources(std::span<const fs::path> paths) {
  ReportSources result;
  std::set<fs::path> given;
  for (const fs::path& path : paths) {
    std::error_code gone;
    const fs::path whole = fs::weakly_canonical(path, gone);
    const std::string why = given.insert(whole).second ? add_given(path, result) : "is given twice";
    if (!why.empty()) result.skipped.push_back({path, why, true});
  }
  // A run that is given by name may be in a given folder, too.
  std::set<fs::path> seen;
  std::erase_if(result.sources, [&](const ReportSource& source) {
    std::error_code gone;
    const fs::path whole = fs::weakly_canonical(source.path, gone);
    return (!source.given && given.contains(whole)) || !seen.insert(whole).second;
  });
  name_sources(result.sources);
  return result;
}

}  // namespace gluon::lab
