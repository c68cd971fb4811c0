#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/expect_error.h"
#include "tests/lab/report/watched_run.h"

namespace gluon::lab {
namespace {

namespace fs = std::filesystem;

class WatchFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    GLUON_PAGE_OR_SKIP();
    answers_.emplace(std::vector{runs()}, FitOptions{}, "");
  }

  fs::path runs() const { return folder_.path() / "runs"; }

  void make_run(const std::string& name) const {
    fs::create_directories(runs() / name);
    folder_.write("runs/" + name + "/log.csv", "step,tokens,loss,val,seconds\n1,8,5,,1\n");
    folder_.write("runs/" + name + "/config.toml", "steps=2\n");
  }

  WatchAnswer data() { return answers_->answer({.method = "GET", .path = "/data.json", .host = "localhost"}); }

  // The names of the runs once they are `wanted`; what they were last when that takes too long.
  std::vector<std::string> names_after(const std::vector<std::string>& wanted) {
    std::vector<std::string> names;
    for (int i = 0; i < 3000; ++i) {
      const WatchAnswer answer = data();
      names.clear();
      if (answer.status == 200) {
        const auto json = nlohmann::json::parse(*answer.body);
        for (const auto& run : json["runs"]) names.push_back(run["name"]);
      }
      if (names == wanted) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return names;
  }

  TemporaryFolder folder_;
  std::optional<WatchAnswers> answers_;
};

TEST_F(WatchFolder, WaitsForTheFolderAndShowsNewRuns) {
  const WatchAnswer waiting = data();
  EXPECT_EQ(waiting.status, 202);
  EXPECT_EQ(*waiting.body, "waiting for a run; " + runs().string() + " does not exist\n");
  fs::create_directories(runs());
  make_run("a");
  EXPECT_EQ(names_after({"a"}), (std::vector<std::string>{"a"}));
  make_run("b");
  EXPECT_EQ(names_after({"a", "b"}), (std::vector<std::string>{"a", "b"}));
  fs::remove_all(runs() / "a");
  EXPECT_EQ(names_after({"b"}), (std::vector<std::string>{"b"}));
}

TEST_F(WatchFolder, SaysWhatIsSkipped) {
  make_run("a");
  fs::create_directories(runs() / "begins");
  folder_.write("runs/begins/config.toml", "steps=2\n");
  const auto json = nlohmann::json::parse(*data().body);
  EXPECT_EQ(json["runs"].size(), 1u);
  ASSERT_EQ(json["skipped"].size(), 1u);
  EXPECT_NE(json["skipped"][0].get<std::string>().find("begins cannot be read yet: "), std::string::npos);
}

TEST_F(WatchFolder, ServesNothingThatALinkPointsTo) {
  make_run("a");
  make_run("linked");
  folder_.write("secret", "a secret text\n");
  fs::remove(runs() / "linked/config.toml");
  fs::create_symlink(folder_.path() / "secret", runs() / "linked/config.toml");
  fs::create_directory_symlink(folder_.path(), runs() / "up");
  const WatchAnswer answer = data();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body->find("a secret text"), std::string::npos);
  EXPECT_EQ(names_after({"a"}), (std::vector<std::string>{"a"}));
}

TEST_F(WatchFolder, OneDamagedRunKeepsItsLastDataAndTheOthersGoOn) {
  make_run("a");
  make_run("b");
  EXPECT_EQ(names_after({"a", "b"}), (std::vector<std::string>{"a", "b"}));
  folder_.write("runs/a/log.csv", "nonsense\n1\n");
  make_run("c");
  EXPECT_EQ(names_after({"a", "b", "c"}), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(nlohmann::json::parse(*data().body)["runs"][0]["log"]["loss"]["value"], std::vector<double>{5});
}

TEST_F(WatchFolder, SweepsAreReadAgainWhenACellEnds) {
  make_run("grid/hidden=1");
  folder_.write("runs/grid/sweep.csv", "hidden,val,loss,seconds\n1,3,3,9\n");
  const auto cells = [&] { return nlohmann::json::parse(*data().body)["sweeps"][0]["cells"].size(); };
  EXPECT_EQ(cells(), 1u);
  folder_.write("runs/grid/sweep.csv", "hidden,val,loss,seconds\n1,3,3,9\n2,3.5,3,9\n");
  for (int i = 0; cells() == 1 && i < 3000; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(cells(), 2u);
}

}  // namespace
}  // namespace gluon::lab
