#include "lab/reproduce/study.h"

#include <gtest/gtest.h>

#include <cmath>

#include "gluon/core/atomic_file.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"

namespace gluon::lab {
namespace {

StudyResult nothing(Workbench& /*bench*/) { return {}; }

constexpr Study kStudy{"name", "A title", "figure 7", nothing};

StudyResult example() {
  StudyResult result;
  result.notes = {"one seed"};
  result.findings = {
      compare("L1", 70, 68, 0.1), {"a|b", "yes", "no", "equal", verdict(false)}, {"c", "1", "2", "never"}};
  result.tables = {{"constants", {"layer", "L1"}, {{"wte", "1.3"}}}};
  result.figures = {
      {.name = "curve", .title = "A curve", .y_label = "y", .series = {{.label = "s", .x = {1, 2}, .y = {3, 4}}}}};
  result.heatmaps = {{"grid", {{"a", "b"}, {{{1, 2}, 3.5}, {{2, 2}, std::nan("")}}}, {}}};
  return result;
}

TEST(Study, AVerdictFollowsFromTheCriterion) {
  EXPECT_EQ(compare("", 70, 77, 0.1).verdict, Verdict::kAgrees);
  EXPECT_EQ(compare("", 70, 77.1, 0.1).verdict, Verdict::kDiffers);
  EXPECT_EQ(compare("", 70, 62.9, 0.1).verdict, Verdict::kDiffers);
  EXPECT_EQ(compare("", 70, std::nan(""), 0.1).verdict, Verdict::kDiffers);
  EXPECT_EQ(compare("", 70, 70, 0.1).criterion, "within 10 %");
  EXPECT_EQ(verdict(true), Verdict::kAgrees);
}

TEST(Study, ThePageHasEverything) {
  const std::string page = study_page(kStudy, example(), "gluon reproduce name");
  for (const char* part :
       {"# A title\n", "In the paper: figure 7.", "    gluon reproduce name\n", "* one seed\n",
        "| L1 | 70 | 68 | within 10 % | agrees |\n", "| a\\|b | yes | no | equal | differs |\n",
        "| c | 1 | 2 | never | cannot tell |\n", "**constants**\n\n| layer | L1 |\n|---|---|\n| wte | 1.3 |\n",
        "![A curve](curve.svg)", "![grid](grid.svg)"}) {
    EXPECT_NE(page.find(part), std::string::npos) << part << "\nin\n" << page;
  }
}

TEST(Study, FilesAreWrittenAndReplaced) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "name";
  write_study(kStudy, {}, "gluon reproduce name", path);
  write_study(kStudy, example(), "gluon reproduce name", path);
  EXPECT_EQ(read_text(path / "study.md", "test"), study_page(kStudy, example(), "gluon reproduce name"));
  EXPECT_EQ(read_text(path / "curve.csv", "test"), "series,x,y\ns,1,3\ns,2,4\n");
  EXPECT_EQ(read_text(path / "grid.csv", "test"), "a,b,val\n1,2,3.5\n2,2,\n");
  EXPECT_TRUE(read_text(path / "curve.svg", "test").starts_with("<svg"));
  EXPECT_TRUE(std::filesystem::exists(path / "grid.svg"));
}

TEST(Study, AFileNameThatIsNoLinkIsRefusedBeforeAnythingIsWritten) {
  const TemporaryFolder folder;
  StudyResult result = example();
  result.heatmaps[0].name = "a and b";
  EXPECT_INPUT_ERROR(write_study(kStudy, result, "gluon reproduce name", folder.path() / "name"),
                     "expected one without spaces, slashes and brackets, got 'a and b'");
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "name"));
}

TEST(Study, FindingsForATerminal) {
  EXPECT_NE(findings_text(example()).find("differs: a|b: paper yes, here no (equal)\n"), std::string::npos);
}

}  // namespace
}  // namespace gluon::lab
