// The paper's constants come out of the authors' logs.

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "experiments/studies.h"
#include "gluon/core/atomic_file.h"
#include "tests/expect_error.h"
#include "tests/lab/data/shared_data.h"
#include "tests/temporary_folder.h"

namespace gluon::experiments {
namespace {

using lab::Verdict;

class AuthorsLogs : public testing::Test {
 protected:
  lab::Workbench bench(const std::filesystem::path& data) {
    return {{.data = data, .out = folder_.path()}, progress_, [](const std::string&) {}, stop_};
  }

  TemporaryFolder folder_;
  std::ostringstream out_;
  lab::Progress progress_{out_, false};
  std::atomic<bool> stop_{false};
};

TEST_F(AuthorsLogs, GiveThePapersConstants) {
  GLUON_SHARED_DATA_OR_SKIP(data, "");
  GLUON_SHARED_DATA_OR_SKIP(logs, "paper-logs");
  lab::Workbench here = bench(data);
  const lab::StudyResult result = authors_logs(here);
  const auto verdict_of = [&](const std::string& what) {
    const auto found = std::ranges::find(result.findings, what, &lab::Finding::what);
    if (found != result.findings.end()) return found->verdict;
    ADD_FAILURE() << "no finding " << what;
    return Verdict::kCannotTell;
  };
  EXPECT_EQ(verdict_of("NanoGPT: L1 of the blocks, median of 72 layers"), Verdict::kAgrees);
  EXPECT_EQ(verdict_of("NanoGPT: L1 of the embedding"), Verdict::kAgrees);
  EXPECT_EQ(verdict_of("NanoGPT: share of L0 in L0 + L1 |g|*"), Verdict::kAgrees);
  EXPECT_EQ(verdict_of("CNN, full batch: L1 of the head (L0 = 0)"), Verdict::kAgrees);
  EXPECT_EQ(verdict_of("CNN, full batch: share of L0 where the fit may choose it"), Verdict::kDiffers);
  EXPECT_EQ(result.figures.size(), 2u);
}

TEST_F(AuthorsLogs, OtherFilesInTheirPlaceAreNamed) {
  GLUON_SHARED_DATA_OR_SKIP(logs, "paper-logs");
  const auto here = folder_.path() / "paper-logs";
  const auto cnn = here / "cnn-fullbatch.txt", nanogpt = here / "nanogpt-unscion.txt";
  std::filesystem::create_directories(here);
  std::filesystem::copy_file(logs / "nanogpt-unscion.txt", nanogpt);
  std::filesystem::copy_file(logs / "nanogpt-unscion.txt", cnn);
  lab::Workbench other = bench(folder_.path());
  EXPECT_INPUT_ERROR((void)authors_logs(other),
                     "cnn-fullbatch.txt must be the authors' log of 14 numbered layers, got "
                     "one of 73 layers, the first '0'");
  std::string samples =
      "step,layer,group,norm,dual_method,estimator,gradient_change,displacement,smoothness,gradient,momentum,"
      "alignment,radius\n";
  for (int i = 0; i < 14; ++i) samples += "1,w" + std::to_string(i) + ",conv,spectral,exact,full,,,1,1,,,\n";
  write_text_atomically(cnn, samples);
  EXPECT_INPUT_ERROR((void)authors_logs(other), "got one of 14 layers, the first 'w0'");
}

TEST_F(AuthorsLogs, AreMaterialsThatMayBeMissing) {
  lab::Workbench here = bench(folder_.path());
  EXPECT_THROW((void)authors_logs(here), lab::MissingMaterial);
}

}  // namespace
}  // namespace gluon::experiments
