// Checkpoints: every field is restored, and a damaged file, a full disk or a killed process does not lose the run.

#include "gluon/checkpoint/checkpoint.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <random>
#include <set>

#include "gluon/checkpoint/safetensors.h"
#include "gluon/core/atomic_file.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"

namespace gluon {
namespace {

namespace fs = std::filesystem;
using Names = std::set<std::string>;

// Every tensor and text holds the step, so that a mixture of two checkpoints is detected.
Checkpoint checkpoint_at(int64_t step, int64_t entries = 6) {
  Checkpoint checkpoint;
  checkpoint.step = step;
  checkpoint.model["w"] = at::full({entries}, static_cast<double>(step), at::kLong);
  checkpoint.optimizer.step = step + 1;
  checkpoint.optimizer.tensors["momentum/w"] = at::full({entries}, static_cast<double>(step), at::kFloat);
  checkpoint.text["config"] = std::to_string(step);
  return checkpoint;
}

class CheckpointFolder : public ::testing::Test {
 protected:
  Names names() const {
    Names found;
    for (const auto& entry : fs::directory_iterator(folder_)) found.insert(entry.path().filename().string());
    return found;
  }
  fs::path file(const std::string& step) const { return folder_ / ("step-" + step + ".safetensors"); }
  void save(std::initializer_list<int64_t> steps) const {
    for (const int64_t step : steps) save_checkpoint(folder_, checkpoint_at(step));
  }

  TemporaryFolder temporary_;
  fs::path parent_ = temporary_.path();
  fs::path folder_ = parent_ / "run" / "checkpoint";
};

void expect_checkpoint(const Checkpoint& checkpoint, int64_t step, int64_t entries = 6) {
  const Checkpoint expected = checkpoint_at(step, entries);
  EXPECT_EQ(checkpoint.step, step);
  EXPECT_EQ(checkpoint.optimizer.step, step + 1);
  EXPECT_TRUE(checkpoint.model.at("w").equal(expected.model.at("w")));
  EXPECT_TRUE(checkpoint.optimizer.tensors.at("momentum/w").equal(expected.optimizer.tensors.at("momentum/w")));
  EXPECT_EQ(checkpoint.text, expected.text);
}

void flip_byte(const fs::path& path, std::streamoff place) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(place);
  const char byte = static_cast<char>(file.get() ^ 0x10);
  file.seekp(place);
  file.put(byte);
}

void flip_last_byte(const fs::path& path) { flip_byte(path, static_cast<std::streamoff>(fs::file_size(path)) - 1); }

TEST_F(CheckpointFolder, EveryFieldRoundTrips) {
  Checkpoint saved;
  saved.step = 400;
  saved.model = {{"w", at::randn({3, 4})}, {"gluon.step", at::zeros({})}, {"count", at::ones({2}, at::kLong)}};
  saved.optimizer = {.step = 399, .tensors = {{"momentum/w", at::randn({3, 4})}}};
  saved.tensors = {{"random/cpu", at::arange(100, at::kByte)}, {"w", at::zeros({1})}};
  saved.text = {{"config", "steps = 400\n"}, {"gluon.step", "7"}, {"checksum", "x"}, {"", ""}};
  save_checkpoint(folder_, saved);
  const auto [loaded, warning] = load_checkpoint(folder_);
  EXPECT_EQ(warning, "");
  EXPECT_EQ(loaded.version, 1);
  EXPECT_EQ(loaded.step, 400);
  EXPECT_EQ(loaded.optimizer.version, 1);
  EXPECT_EQ(loaded.optimizer.step, 399);
  EXPECT_EQ(loaded.text, saved.text);
  const auto expect_same = [](const auto& a, const auto& b) {
    ASSERT_EQ(a.size(), b.size());
    for (const auto& [name, tensor] : a) EXPECT_TRUE(tensor.equal(b.at(name))) << name;
  };
  expect_same(loaded.model, saved.model);
  expect_same(loaded.optimizer.tensors, saved.optimizer.tensors);
  expect_same(loaded.tensors, saved.tensors);
  EXPECT_EQ(names(), (Names{"step-00000400.safetensors", "latest"}));
  EXPECT_EQ(read_text(folder_ / "latest", "test"), "step-00000400.safetensors\n");
}

TEST_F(CheckpointFolder, KeepsTheTwoNewestSteps) {
  save({0, 99999999, 100000000, 100000001});
  EXPECT_EQ(names(), (Names{"step-100000000.safetensors", "step-100000001.safetensors", "latest"}));
  expect_checkpoint(load_checkpoint(folder_).checkpoint, 100000001);
  save({100000001});
  EXPECT_EQ(names().size(), 3u);
}

TEST_F(CheckpointFolder, RunResumedFromAnEarlierStepKeepsItsFiles) {
  save({300, 400});
  flip_last_byte(file("00000400"));
  save({350});
  EXPECT_EQ(names(), (Names{"step-00000300.safetensors", "step-00000350.safetensors", "latest"}));
  expect_checkpoint(load_checkpoint(folder_).checkpoint, 350);
  save({10});
  EXPECT_EQ(names(), (Names{"step-00000010.safetensors", "step-00000350.safetensors", "latest"}));
  expect_checkpoint(load_checkpoint(folder_).checkpoint, 10);
}

TEST_F(CheckpointFolder, TheOneBeforeIsTheNewestIntactOneOfAnEarlierStep) {
  save({1, 2});
  expect_checkpoint(load_checkpoint_before(folder_, 2).value(), 1);
  expect_checkpoint(load_checkpoint_before(folder_, 3).value(), 2);
  EXPECT_FALSE(load_checkpoint_before(folder_, 1));
  flip_last_byte(file("00000001"));
  EXPECT_FALSE(load_checkpoint_before(folder_, 2));
}

TEST_F(CheckpointFolder, EveryChangedByteFallsBackWithAWarning) {
  save({1, 2});
  const auto size = static_cast<std::streamoff>(fs::file_size(file("00000002")));
  std::string last_warning;
  for (std::streamoff place = 0; place < size; ++place) {
    flip_byte(file("00000002"), place);
    const auto [checkpoint, warning] = load_checkpoint(folder_);
    expect_checkpoint(checkpoint, 1);
    EXPECT_NE(warning, "") << place;
    last_warning = warning;
    flip_byte(file("00000002"), place);
  }
  EXPECT_NE(last_warning.find(file("00000002").string() + "' is damaged"), std::string::npos) << last_warning;
  EXPECT_NE(last_warning.find("'" + file("00000001").string() + "' was taken instead"), std::string::npos);
  EXPECT_EQ(load_checkpoint(folder_).warning, "");
}

TEST_F(CheckpointFolder, ErrorListsEveryDamagedFile) {
  save({1, 2});
  flip_last_byte(file("00000002"));
  fs::resize_file(file("00000001"), 5);
  EXPECT_INPUT_ERROR(load_checkpoint(folder_), "checkpoint: no intact checkpoint in '" + folder_.string() + "': ");
  EXPECT_INPUT_ERROR(load_checkpoint(folder_), file("00000002").string() + "' is damaged");
  EXPECT_INPUT_ERROR(load_checkpoint(folder_),
                     file("00000001").string() + "' is not a safetensors file or is truncated: 5 bytes");
}

TEST_F(CheckpointFolder, LatestSelectsTheFileAndIsOptional) {
  save({1, 2});
  // The process was killed after it wrote the tensor file and before it wrote `latest`.
  std::ofstream(folder_ / "latest") << "step-00000001.safetensors\n";
  EXPECT_EQ(load_checkpoint(folder_).checkpoint.step, 1);
  EXPECT_EQ(load_checkpoint(folder_).warning, "");
  fs::remove(folder_ / "latest");
  EXPECT_EQ(load_checkpoint(folder_).checkpoint.step, 2);
  EXPECT_EQ(load_checkpoint(folder_).warning, "");
  for (const std::string name : {"step-00000003.safetensors", "../../secret", "step-2.safetensors"}) {
    std::ofstream(folder_ / "latest") << name << '\n';
    const auto [checkpoint, warning] = load_checkpoint(folder_);
    EXPECT_EQ(checkpoint.step, 2);
    EXPECT_NE(warning.find("names '" + name + "', which is not there"), std::string::npos) << warning;
  }
}

TEST_F(CheckpointFolder, WithoutCheckpointLoadingIsAnError) {
  EXPECT_FALSE(has_checkpoint(folder_));
  EXPECT_INPUT_ERROR(load_checkpoint(folder_), "checkpoint: '" + folder_.string() + "' is not a directory");
  fs::create_directories(folder_);
  EXPECT_INPUT_ERROR(load_checkpoint(folder_), "' holds no checkpoint, expected step-00000000.safetensors");
  std::ofstream(folder_ / "step-1.safetensors") << "another name";
  EXPECT_FALSE(has_checkpoint(folder_));
  EXPECT_INPUT_ERROR(load_checkpoint(folder_), "holds no checkpoint");
  std::ofstream(parent_ / "file") << "x";
  EXPECT_INPUT_ERROR(load_checkpoint(parent_ / "file"), "file' is not a directory");
  EXPECT_INPUT_ERROR(save_checkpoint(parent_ / "file" / "x", checkpoint_at(1)), "checkpoint: cannot make '");
}

TEST_F(CheckpointFolder, HasCheckpointLooksForItsFiles) {
  save({1});
  EXPECT_TRUE(has_checkpoint(folder_));
  fs::remove(folder_ / "latest");
  EXPECT_TRUE(has_checkpoint(folder_));
  fs::remove(file("00000001"));
  EXPECT_FALSE(has_checkpoint(folder_));
  std::ofstream(folder_ / "latest") << "step-00000001.safetensors\n";
  EXPECT_TRUE(has_checkpoint(folder_));
}

TEST_F(CheckpointFolder, AnUnknownVersionIsRejectedDespiteAnOlderFile) {
  save({1, 2});
  for (const std::string version : {"2", "0"}) {
    TensorFile unknown = read_safetensors(file("00000002"));
    unknown.metadata["gluon.version"] = version;
    unknown.metadata["new"] = "thing";
    write_safetensors(file("00000002"), unknown);
    EXPECT_INPUT_ERROR(load_checkpoint(folder_),
                       file("00000002").string() + "' has version " + version + ", this library reads versions 1 to 1");
  }
}

TEST_F(CheckpointFolder, ATrialFailsWhereSavingWouldAndLeavesNoFile) {
  Checkpoint checkpoint = checkpoint_at(1);
  try_checkpoint(folder_, checkpoint);
  EXPECT_TRUE(fs::is_empty(folder_));
  checkpoint.text["data"] = "a\xff";
  EXPECT_INPUT_ERROR(try_checkpoint(folder_, checkpoint), "UTF-8");
  EXPECT_TRUE(fs::is_empty(folder_));
  std::ofstream(parent_ / "taken") << "x";
  EXPECT_INPUT_ERROR(try_checkpoint(parent_ / "taken", checkpoint_at(1)), "checkpoint: cannot ");
}

TEST_F(CheckpointFolder, UnknownEntriesAreRejected) {
  save({1});
  const TensorFile good = read_safetensors(file("00000001"));
  const auto refuses = [&](auto change, const std::string& text) {
    TensorFile bad = good;
    change(bad);
    write_safetensors(file("00000001"), bad);
    EXPECT_INPUT_ERROR(load_checkpoint(folder_), text);
  };
  refuses([](TensorFile& f) { f.metadata.erase("gluon.version"); }, "its metadata has no 'gluon.version'");
  refuses([](TensorFile& f) { f.metadata["gluon.step"] = "1x"; },
          "metadata 'gluon.step' must be a whole number >= 0, got '1x'");
  refuses([](TensorFile& f) { f.metadata["gluon.optimizer.step"] = "-1"; }, "must be a whole number >= 0, got '-1'");
  refuses([](TensorFile& f) { f.metadata["gluon.optimizer.version"] = ""; }, "must be a whole number >= 0, got ''");
  refuses([](TensorFile& f) { f.metadata["other"] = ""; }, "metadata 'other' must start with text/");
  refuses([](TensorFile& f) { f.tensors["w"] = at::ones({1}); },
          "tensor 'w' must start with model/, optimizer/ or tensors/");
  std::ofstream(file("00000001"), std::ios::binary) << std::string("\2\0\0\0\0\0\0\0{}", 10);
  EXPECT_INPUT_ERROR(load_checkpoint(folder_), "has no checksum");
}

TEST_F(CheckpointFolder, NegativeStepsAndVersionsAreNotSaved) {
  const auto refuses = [&](auto change, const std::string& text) {
    Checkpoint bad = checkpoint_at(1);
    change(bad);
    EXPECT_INPUT_ERROR(save_checkpoint(folder_, bad), text);
  };
  refuses([](Checkpoint& c) { c.version = 2; }, "this library writes version 1, got 2");
  refuses([](Checkpoint& c) { c.step = -3; }, "must be >= 0, got step -3, optimizer step 2 and version 1");
  refuses([](Checkpoint& c) { c.optimizer.step = -1; }, "got step 1, optimizer step -1 and version 1");
  refuses([](Checkpoint& c) { c.optimizer.version = -1; }, "optimizer step 2 and version -1");
  EXPECT_FALSE(fs::exists(folder_));
  Checkpoint zero;
  zero.optimizer.version = 0;
  save_checkpoint(folder_, zero);
  const Checkpoint loaded = load_checkpoint(folder_).checkpoint;
  EXPECT_EQ(loaded.step + loaded.optimizer.step + loaded.optimizer.version, 0);
}

TEST_F(CheckpointFolder, RemovesTemporariesOfKilledWritersOnly) {
  fs::create_directories(folder_);
  for (const std::string name : {"step-00000001.safetensors.tmp-12-0", "latest.tmp-7-3", "notes.tmp-1", "step-x"})
    std::ofstream(folder_ / name) << "x";
  save({2});
  EXPECT_EQ(names(), (Names{"step-00000002.safetensors", "latest", "notes.tmp-1", "step-x"}));
}

TEST_F(CheckpointFolder, FileSizeLimitKeepsTheOldCheckpoint) {
  save({1});
  const Names before = names();
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const auto old_handler = signal(SIGXFSZ, SIG_IGN);
  for (const rlim_t most : {rlim_t{0}, rlim_t{100}, rlim_t{5000}, rlim_t{70000}}) {
    const rlimit small{most, limit.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    EXPECT_INPUT_ERROR(save_checkpoint(folder_, checkpoint_at(2, 10000)), "File too large");
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    EXPECT_EQ(names(), before);
    expect_checkpoint(load_checkpoint(folder_).checkpoint, 1);
  }
  signal(SIGXFSZ, old_handler);
  save_checkpoint(folder_, checkpoint_at(2, 10000));
  expect_checkpoint(load_checkpoint(folder_).checkpoint, 2, 10000);
}

TEST_F(CheckpointFolder, FullDiskKeepsTheOldCheckpoint) {
  fs::create_directories(folder_);
  // The mount is private to this thread: nobody else sees it, and it ends with the test.
  if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("tmpfs", folder_.c_str(), "tmpfs", 0, "size=256k") != 0)
    GTEST_SKIP() << "a small disk can be mounted by root only";
  save({1, 2});
  const Names before = names();
  EXPECT_INPUT_ERROR(save_checkpoint(folder_, checkpoint_at(3, 100000)),
                     "safetensors: cannot write '" + file("00000003").string() + "': No space left on device");
  EXPECT_EQ(names(), before);
  EXPECT_EQ(load_checkpoint(folder_).warning, "");
  expect_checkpoint(load_checkpoint(folder_).checkpoint, 2);
  save({3});
  expect_checkpoint(load_checkpoint(folder_).checkpoint, 3);
  EXPECT_EQ(umount(folder_.c_str()), 0);
}

TEST_F(CheckpointFolder, KilledWriterLeavesAnIntactCheckpoint) {
  constexpr int64_t kEntries = 100000;
  save_checkpoint(folder_, checkpoint_at(0, kEntries));
  const auto start = std::chrono::steady_clock::now();
  save_checkpoint(folder_, checkpoint_at(1, kEntries));
  const std::chrono::duration<double, std::micro> one_save = std::chrono::steady_clock::now() - start;
  std::mt19937 random(3);
  std::uniform_real_distribution<double> saves(0, 6);
  int64_t step = 1;
  int progressed = 0;
  // On a busy machine a writer may be killed before its first save; later ones live longer.
  for (int round = 0; round < 20 || (progressed == 0 && round < 200); ++round) {
    const pid_t writer = fork();
    ASSERT_GE(writer, 0);
    if (writer == 0) {
      at::set_num_threads(1);  // fork() does not copy the threads of the parent
      try {
        for (int64_t next = step + 1;; ++next) save_checkpoint(folder_, checkpoint_at(next, kEntries));
      } catch (...) {
        _exit(1);
      }
    }
    usleep(static_cast<useconds_t>(one_save.count() * saves(random) * (1 + round / 20)));
    ASSERT_EQ(kill(writer, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(waitpid(writer, &status, 0), writer);
    EXPECT_TRUE(WIFSIGNALED(status)) << "the writer failed by itself";
    const auto [checkpoint, warning] = load_checkpoint(folder_);
    EXPECT_EQ(warning, "");
    EXPECT_GE(checkpoint.step, step);
    if (checkpoint.step > step) ++progressed;
    step = checkpoint.step;
    expect_checkpoint(checkpoint, step, kEntries);
  }
  EXPECT_GT(progressed, 0);
  save_checkpoint(folder_, checkpoint_at(step + 1, kEntries));
  EXPECT_EQ(names().size(), 3u);
}

}  // namespace
}  // namespace gluon
