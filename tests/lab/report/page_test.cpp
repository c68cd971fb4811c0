#include "lab/report/page.h"

#include "tests/expect_error.h"
#include "tests/lab/report/watched_run.h"

namespace gluon::lab {
namespace {

TEST(Page, EmbedsDataAndMakesNoRequests) {
  GLUON_PAGE_OR_SKIP();
  const std::string page = page_with(R"({"runs": []})");
  EXPECT_NE(page.find(R"(<script id="data" type="application/json">{"runs": []}</script>)"), std::string::npos);
  EXPECT_EQ(page.find("@GLUON_"), std::string::npos);
  EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
  EXPECT_NE(page.find("connect-src 'none'"), std::string::npos);
  for (const char* source : {"src=\"", "href=\"http", "@import", "url(http"}) {
    EXPECT_EQ(page.find(source), std::string::npos) << source;
  }
}

TEST(Page, LivePageFetchesFromItsServer) {
  GLUON_PAGE_OR_SKIP();
  const std::string page = live_page();
  EXPECT_NE(page.find(R"(<script id="data" type="application/json">null</script>)"), std::string::npos);
  EXPECT_NE(page.find("connect-src 'self'"), std::string::npos);
  EXPECT_EQ(page.find("@GLUON_"), std::string::npos);
}

TEST(Page, ErrorWithoutPage) {
  if (built_with_page()) GTEST_SKIP() << "built with the page";
  EXPECT_INPUT_ERROR((void)page_with("{}"), "built without the page's charting library");
  EXPECT_INPUT_ERROR((void)live_page(), "built without the page's charting library");
}

}  // namespace
}  // namespace gluon::lab
