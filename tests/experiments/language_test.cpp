#include "experiments/language.h"

#include <gtest/gtest.h>

#include <sstream>

#include "tests/temporary_folder.h"

namespace gluon::experiments {
namespace {

TEST(ScaleNote, NamesTheSizeThatIsTrained) {
  const TemporaryFolder folder;
  std::ostringstream out;
  lab::Progress progress(out, false);
  const std::atomic<bool> stop{false};
  lab::Workbench bench(
      {.data = folder.path(), .out = folder.path(), .small = true}, progress, [](const std::string&) {}, stop);
  lab::TrainConfig config = bench.language();
  const std::string rest = ", 300 steps of 16 x 128, Gluon's own sources as bytes, one seed.";
  EXPECT_NE(scale_note(bench, config).find("Here: nanogpt-tiny" + rest), std::string::npos);
  config.layers = 6;
  config.width = 384;
  EXPECT_NE(scale_note(bench, config).find("Here: nanogpt-tiny with 6 layers of width 384" + rest), std::string::npos);
}

}  // namespace
}  // namespace gluon::experiments
