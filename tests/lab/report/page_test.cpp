#include "lab/report/page.h"

#include "tests/expect_error.h"
#include "tests/lab/report/watched_run.h"

namespace gluon::lab {
namespace {

TEST(Page, EmbedsDataOrFetchesItFromItsServer) {
  GLUON_PAGE_OR_SKIP();
  const std::string json = R"({"runs": []})";
  for (const auto& [page, data, servers] :
       {std::tuple(page_with(json), json, "'none'"), {live_page(), "null", "'self'"}}) {
    EXPECT_NE(page.find("<script id=\"data\" type=\"application/json\">" + data + "</script>"), std::string::npos);
    EXPECT_NE(page.find(std::string("connect-src ") + servers), std::string::npos);
    EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
    for (const char* absent : {"@GLUON_", "src=\"", "href=\"http", "@import", "url(http"}) {
      EXPECT_EQ(page.find(absent), std::string::npos) << absent;
    }
  }
}

TEST(Page, ErrorWithoutPage) {
  if (built_with_page()) GTEST_SKIP() << "built with the page";
  EXPECT_INPUT_ERROR((void)page_with("{}"), "built without the page's charting library");
  EXPECT_INPUT_ERROR((void)live_page(), "built without the page's charting library");
}

}  // namespace
}  // namespace gluon::lab
