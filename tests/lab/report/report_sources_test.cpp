#include "lab/report/report_sources.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>

#include "lab/report/report_data.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"

namespace gluon::lab {
namespace {

namespace fs = std::filesystem;

void make_run(const TemporaryFolder& folder, const std::string& name) {
  fs::create_directories(folder.path() / name);
  folder.write(name + "/config.toml", "steps=2\n");
  folder.write(name + "/log.csv", "step,tokens,loss,val,seconds\n1,8,5,,1\n2,16,4,4.1,2\n");
}

ReportSources find(const std::vector<fs::path>& paths) { return find_sources(paths); }

std::vector<std::string> names(const ReportSources& found) {
  std::vector<std::string> all;
  for (const ReportSource& source : found.sources) all.push_back(source.name);
  return all;
}

std::vector<std::string> reasons(const ReportSources& found) {
  std::vector<std::string> all;
  for (const SkippedSource& one : found.skipped) all.push_back(one.path.filename().string() + " " + one.why);
  return all;
}

TEST(ReportSources, AFolderStandsForTheRunsAndSweepsInIt) {
  const TemporaryFolder folder;
  for (const char* run : {"run-10", "run-2", "run-1"}) make_run(folder, run);
  make_run(folder, "grid/hidden=1");
  folder.write("grid/sweep.csv", "hidden,val,loss,seconds\n1,3,3,9\n");
  make_run(folder, "group/run");
  folder.write("notes.txt", "");
  fs::create_directories(folder.path() / ".git");
  const ReportSources found = find({folder.path()});
  EXPECT_EQ(names(found), (std::vector<std::string>{"grid", "run-1", "run-2", "run-10"}));
  EXPECT_TRUE(found.sources[0].sweep);
  EXPECT_FALSE(found.sources[0].given);
  EXPECT_EQ(reasons(found),
            std::vector<std::string>{"group holds neither a run (config.toml) nor a sweep (sweep.csv)"});
}

TEST(ReportSources, ARunGivenByNameAndInAFolderIsShownOnce) {
  const TemporaryFolder folder;
  for (const char* run : {"a", "b"}) make_run(folder, run);
  EXPECT_EQ(names(find({folder.path() / "b", folder.path()})), (std::vector<std::string>{"b", "a"}));
  EXPECT_EQ(names(find({folder.path(), folder.path() / "b"})), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(reasons(find({folder.path() / "b", folder.path() / "a/../b"})),
            std::vector<std::string>{"b is given twice"});
}

TEST(ReportSources, TheSameNamesGetPaths) {
  const TemporaryFolder folder;
  for (const char* run : {"x/a", "y/a", "y/b"}) make_run(folder, run);
  EXPECT_EQ(names(find({folder.path() / "x", folder.path() / "y"})),
            (std::vector<std::string>{(folder.path() / "x/a").string(), (folder.path() / "y/a").string(), "b"}));
}

TEST(ReportSources, LinksAndFilesThatAreNotRegularAreNotFollowed) {
  const TemporaryFolder folder, elsewhere;
  make_run(elsewhere, "run");
  elsewhere.write("secret", "secret\n");
  for (const char* run : {"a", "config", "pipe"}) make_run(folder, run);
  fs::create_directory_symlink(elsewhere.path() / "run", folder.path() / "linked");
  fs::remove(folder.path() / "config/config.toml");
  fs::create_symlink(elsewhere.path() / "secret", folder.path() / "config/config.toml");
  ASSERT_EQ(mkfifo((folder.path() / "pipe/facts.json").c_str(), 0600), 0);
  const ReportSources found = find({folder.path()});
  EXPECT_EQ(names(found), std::vector<std::string>{"a"});
  EXPECT_EQ(reasons(found), (std::vector<std::string>{
                                "config is left out: its config.toml is a link",
                                "linked is a link, which is not followed inside a folder; give its target by name",
                                "pipe is left out: its facts.json is not a regular file",
                            }));
  EXPECT_EQ(names(find({folder.path() / "linked"})), std::vector<std::string>{"linked"}) << "given by name";
}

TEST(ReportSources, TheNumberOfRunsOfAFolderIsBounded) {
  const TemporaryFolder folder;
  const auto start = fs::file_time_type::clock::now();
  for (std::size_t i = 0; i < kMostFound + 20; ++i) {
    const std::string name = "run-" + std::to_string(i);
    make_run(folder, name);
    fs::last_write_time(folder.path() / name, start + std::chrono::seconds(i == 0 ? 1000 : i));
  }
  const ReportSources found = find({folder.path()});
  ASSERT_EQ(found.sources.size(), kMostFound);
  EXPECT_EQ(found.sources[0].name, "run-0") << "it was written to last";
  EXPECT_EQ(found.sources[1].name, "run-21");
  ASSERT_EQ(found.skipped.size(), 1u);
  EXPECT_EQ(found.skipped[0].why, "holds 120 runs and sweeps; only the 100 that were written to last are shown");
  for (int i = 0; i < 60; ++i) fs::create_directory(folder.path() / ("other-" + std::to_string(i)));
  EXPECT_EQ(find({folder.path()}).skipped.size(), 52u);
}

TEST(ReportSources, TheReportOfAFolderSaysWhatItSkips) {
  const TemporaryFolder folder;
  for (const char* run : {"a", "damaged"}) make_run(folder, run);
  folder.write("damaged/log.csv", "nonsense\n1\n");
  fs::create_directories(folder.path() / "empty");
  const std::vector<fs::path> paths{folder.path()};
  const ReportData data = collect_report(paths);
  ASSERT_EQ(data.runs.size(), 1u);
  EXPECT_EQ(data.runs[0].name, "a");
  ASSERT_EQ(data.skipped.size(), 2u);
  EXPECT_NE(data.skipped[0].find("empty holds neither a run"), std::string::npos);
  EXPECT_NE(data.skipped[1].find("damaged cannot be read: run: "), std::string::npos);
}

TEST(ReportSources, AFolderWithNothingToShowIsAnError) {
  const TemporaryFolder folder;
  const auto collect = [&] {
    const std::vector<fs::path> paths{folder.path()};
    (void)collect_report(paths);
  };
  EXPECT_INPUT_ERROR(collect(), "holds neither a run (config.toml) nor a sweep (sweep.csv), and no folder in it does");
  make_run(folder, "a");
  folder.write("a/log.csv", "nonsense\n1\n");
  EXPECT_INPUT_ERROR(collect(), "there is nothing to show: ");
  fs::remove(folder.path() / "a/log.csv");
  fs::create_symlink("/dev/zero", folder.path() / "a/log.csv");
  EXPECT_INPUT_ERROR(collect(), "holds nothing that can be shown: ");
}

}  // namespace
}  // namespace gluon::lab
