#include "lab/report/page.h"

#include "tests/expect_error.h"

namespace gluon::lab {
namespace {

// Built with the page or without: both have to behave.
bool has_page() {
  try {
    return !page_template().empty();
  } catch (const InputError&) {
    return false;
  }
}

TEST(Page, HoldsTheDataAndAsksForNothingElse) {
  if (!has_page()) GTEST_SKIP() << "built without the page";
  const std::string page = page_with(R"({"runs": []})");
  EXPECT_NE(page.find(R"(<script id="data" type="application/json">{"runs": []}</script>)"),
            std::string::npos);
  EXPECT_EQ(page.find("@GLUON_"), std::string::npos);
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
  EXPECT_NE(page.find("connect-src 'none'"), std::string::npos);
  for (const char* source : {"src=\"", "href=\"http", "@import", "url(http"}) {
    EXPECT_EQ(page.find(source), std::string::npos) << source;
  }
}

TEST(Page, ALivePageHasNoDataAndAsksItsServer) {
  if (!has_page()) GTEST_SKIP() << "built without the page";
  const std::string page = live_page();
  EXPECT_NE(page.find(R"(<script id="data" type="application/json">null</script>)"), std::string::npos);
  EXPECT_NE(page.find("connect-src 'self'"), std::string::npos);
  EXPECT_EQ(page.find("@GLUON_"), std::string::npos);
}

TEST(Page, SaysThatItIsOff) {
  if (has_page()) GTEST_SKIP() << "built with the page";
  EXPECT_INPUT_ERROR((void)page_with("{}"), "the page is off");
  EXPECT_INPUT_ERROR((void)live_page(), "the page is off");
}

}  // namespace
}  // namespace gluon::lab
