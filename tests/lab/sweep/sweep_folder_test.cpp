#include "lab/sweep/sweep_folder.h"

#include <chrono>
#include <future>
#include <memory>
#include <sstream>

#include "lab/sweep/folder_lock.h"
#include "lab/train/config_fields.h"
#include "tests/expect_error.h"
#include "tests/lab/train/small_config.h"
#include "tests/temporary_folder.h"

namespace gluon::lab {
namespace {

using namespace std::chrono_literals;

std::vector<double> radii_in(const std::filesystem::path& csv) {
  std::vector<double> radii;
  for (const SweepCell& cell : read_sweep_csv(csv).cells) radii.push_back(cell.radii[0]);
  return radii;
}

// A cell that is recorded without a run: its radius is beyond float32.
void record(const std::filesystem::path& path, double radius, const Announce& announce) {
  SweepFolder folder("sweep", path, {"hidden"});
  std::ostringstream text;
  Progress progress(text, false);
  EXPECT_TRUE(folder.run(folder.plan(small_config(), {radius}), "cell", progress, announce, false));
}

TEST(SweepFolder, WaitsForTheRowsOfAnotherProcess) {
  const TemporaryFolder folder;
  const std::filesystem::path csv = folder.path() / "sweep.csv";
  auto lock = std::make_unique<FolderLock>(folder.path());
  std::promise<void> began;
  const auto done = std::async(std::launch::async,
                               [&] { record(folder.path(), 1e39, [&](const std::string&) { began.set_value(); }); });
  began.get_future().wait();
  EXPECT_EQ(done.wait_for(300ms), std::future_status::timeout);
  EXPECT_FALSE(std::filesystem::exists(csv));
  folder.write("sweep.csv", "hidden,val,loss,seconds\n1,2,3,4\n");
  lock.reset();
  done.wait();
  EXPECT_EQ(radii_in(csv), (std::vector<double>{1e39, 1}));
}

TEST(SweepFolder, TwoAtOnceLoseNoRow) {
  for (int round = 0; round < 10; ++round) {
    const TemporaryFolder folder;
    const auto quietly = [](const std::string&) {};
    const auto other = std::async(std::launch::async, [&] { record(folder.path(), 2e39, quietly); });
    record(folder.path(), 1e39, quietly);
    other.wait();
    EXPECT_EQ(radii_in(folder.path() / "sweep.csv").size(), 2u);
  }
}

// A table ranks its cells, which must differ in nothing but their radii.
TEST(SweepFolder, TakesNoCellOfAnotherConfig) {
  const TemporaryFolder folder;
  TrainConfig config = small_config();
  const std::string path = (folder.path() / "hidden=0.01").string();
  folder.write("sweep.csv", "hidden,val,loss,seconds\n0.01,2,3,4\n");
  TrainConfig cell = config;
  cell.radius = "hidden=0.01";
  cell.out = path;
  std::filesystem::create_directory(path);
  folder.write("hidden=0.01/config.toml", config_toml(cell));
  const SweepFolder sweep("sweep", folder.path(), {"hidden"});
  EXPECT_EQ(sweep.plan(config, {0.02}).config.radius, "hidden=0.02");
  config.steps = 40;
  EXPECT_INPUT_ERROR(sweep.plan(config, {0.02}),
                     "sweep: " + path + " holds a run with another config; choose another --out");
}

TEST(SweepFolder, ACellGoesOnWithItsOwnRadiiOnly) {
  const TemporaryFolder folder;
  TrainConfig config = small_config();
  config.on_nan = "rollback";
  EXPECT_INPUT_ERROR(SweepFolder("sweep", folder.path(), {"hidden"}).plan(config, {0.02}),
                     "sweep: --on-nan rollback would train a cell with other radii than its own; allowed are error and "
                     "skip");
}

}  // namespace
}  // namespace gluon::lab
