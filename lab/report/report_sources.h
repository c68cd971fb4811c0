// ReportSources: what the paths given to `gluon report` and `gluon watch` stand for.
//
//   runs/a, smoothness.csv, a log    a run
//   runs/grid, runs/grid/sweep.csv   a sweep
//   runs                             a folder of runs: the runs and sweeps directly in it, by name
//
// A folder may be written by others. Links in it are not followed, files that are not regular are not opened, and at
// most kMostFound runs and sweeps of it are shown, those that were written to last.

#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace gluon::lab {

struct ReportSource {
  std::filesystem::path path;
  std::string name;  // short and unique: that of the folder or file, the whole path where two are the same
  bool sweep = false;
  bool given = true;  // by name, else found in a folder
};

struct SkippedSource {
  std::filesystem::path path;
  std::string why;  // "does not exist"
  bool given = true;

  /// "runs/a does not exist".
  std::string sentence() const { return path.string() + " " + why; }
};

struct ReportSources {
  std::vector<ReportSource> sources;
  std::vector<SkippedSource> skipped;
};

inline constexpr std::size_t kMostFound = 100;  // runs and sweeps of one folder

/// Reads no file, only their names. Every path gives a source or the reason why it gives none; folders that hold
/// neither a run nor a sweep are skipped with a reason, other files in a folder of runs without one.
ReportSources find_sources(std::span<const std::filesystem::path> paths);

/// Why the files of the run or sweep in `folder` are not opened: a file of theirs is a link or not a regular file.
/// Empty when they may be.
std::string refusal_of(const std::filesystem::path& folder);

}  // namespace gluon::lab
