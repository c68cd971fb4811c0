#include "lab/report/watch_request.h"

#include <gtest/gtest.h>

namespace gluon::lab {
namespace {

int status_of(std::string_view bytes) {
  try {
    return read_request(bytes) ? 200 : 0;
  } catch (const BadRequest& bad) {
    return bad.status;
  }
}

TEST(WatchRequest, ReadsWhatWatchNeeds) {
  const auto request = read_request(
      "GET /data.json?a=b&token=from-the-address HTTP/1.1\r\nhost:  localhost:7007 \r\nIf-None-Match: "
      "\"7\"\r\n\r\nrest");
  ASSERT_TRUE(request);
  EXPECT_EQ(request->method, "GET");
  EXPECT_EQ(request->path, "/data.json");
  EXPECT_EQ(request->host, "localhost:7007");
  EXPECT_EQ(request->token, "from-the-address");
  EXPECT_EQ(request->known, "\"7\"");
  const auto bearer = read_request("HEAD /?token=x HTTP/1.0\r\nAUTHORIZATION: Bearer abc\r\n\r\n");
  ASSERT_TRUE(bearer);
  EXPECT_EQ(bearer->token, "abc");
}

// Every part of a request is a request that has not ended yet.
TEST(WatchRequest, WaitsForTheEnd) {
  constexpr std::string_view kWhole = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  for (std::size_t size = 0; size < kWhole.size(); ++size) EXPECT_EQ(status_of(kWhole.substr(0, size)), 0) << size;
  EXPECT_EQ(status_of(kWhole), 200);
}

TEST(WatchRequest, RefusesWhatIsNotHttp) {
  using namespace std::string_view_literals;
  for (const std::string_view bytes :
       {"\r\n\r\n"sv, "GET\r\n\r\n"sv, " / HTTP/1.1\r\n\r\n"sv, "G\0T / HTTP/1.1\r\n\r\n"sv, "GET  HTTP/1.1\r\n\r\n"sv,
        "GET / HTTP/1.1\r\nHost\r\n\r\n"sv, "GET / HTTP/1.1\r\n: x\r\n\r\n"sv, "GET / HTTP/1.1\r\nHost : x\r\n\r\n"sv,
        "GET / HTTP/1.1\r\n folded: x\r\n\r\n"sv, "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"sv,
        "GET / HTTP/1.1\r\nX: \x7f\r\n\r\n"sv}) {
    EXPECT_EQ(status_of(bytes), 400) << bytes;
  }
  for (const char* line : {"GET / HTTP/2.0", "GET / HTTP/9.9", "GET / x", "GET /", "GET / HTTP/1.1 "})
    EXPECT_EQ(status_of(std::string(line) + "\r\n\r\n"), 505) << line;
  EXPECT_EQ(status_of(std::string(kLongestRequest, 'x')), 431);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nX: " + std::string(kLongestRequest, 'x') + "\r\n\r\n"), 431);
}

}  // namespace
}  // namespace gluon::lab
