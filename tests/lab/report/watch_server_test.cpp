// Tests over plain sockets, which allow malformed requests.
#include "lab/report/watch_server.h"

#include <arpa/inet.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <random>
#include <thread>

#include "gluon/core/atomic_file.h"
#include "tests/expect_error.h"
#include "tests/lab/report/watched_run.h"

namespace gluon::lab {
namespace {

constexpr const char* kGet = "GET /data.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";

// A socket that is connected to the server, or -1. It gives up on an answer after ten seconds.
int connected(int port) {
  const int client = socket(AF_INET, SOCK_STREAM, 0);
  const timeval patience{.tv_sec = 10, .tv_usec = 0};
  setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  if (connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return client;
  close(client);
  return -1;
}

// Sends the bytes and returns the answer; empty when the server closes the connection. Closes its own side after an
// incomplete request, for the rest of which the server would wait.
std::string exchange(int port, std::string_view bytes) {
  const int client = connected(port);
  std::string answer;
  if (send(client, bytes.data(), bytes.size(), MSG_NOSIGNAL) >= 0) {
    if (bytes.find("\r\n\r\n") == std::string_view::npos) shutdown(client, SHUT_WR);
    char buffer[4096];
    for (ssize_t count; (count = recv(client, buffer, sizeof buffer, 0)) > 0;)
      answer.append(buffer, static_cast<std::size_t>(count));
  }
  close(client);
  return answer;
}

std::map<std::string, std::string> contents(const std::filesystem::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    files[entry.path().filename()] = read_text(entry.path(), "test");
  return files;
}

class WatchServerTest : public WatchTest {
 protected:
  void SetUp() override {
    WatchTest::SetUp();
    if (IsSkipped()) return;
    server_ = serve(*answers_, {.port = 0});
  }

  std::string request(std::string_view bytes) const { return exchange(server_.port, bytes); }
  void expect_answering() const { EXPECT_TRUE(request(kGet).starts_with("HTTP/1.1 200 ")); }

  WatchServer server_;
};

TEST_F(WatchServerTest, Headers) {
  const std::string answer = request(kGet);
  for (const char* header : {"Content-Type: application/json\r\n", "ETag: \"", "Cache-Control: no-store\r\n",
                             "X-Content-Type-Options: nosniff\r\n", "Connection: close\r\n"}) {
    EXPECT_NE(answer.find(header), std::string::npos) << header;
  }
  const std::string head = request("HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_TRUE(head.starts_with("HTTP/1.1 200 "));
  EXPECT_TRUE(head.ends_with("\r\n\r\n"));
  const std::string post = request("POST /data.json HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc");
  EXPECT_TRUE(post.starts_with("HTTP/1.1 405 "));
  EXPECT_NE(post.find("Allow: GET, HEAD\r\n"), std::string::npos);
}

TEST_F(WatchServerTest, RejectsOtherHosts) {
  EXPECT_TRUE(request("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n").starts_with("HTTP/1.1 403 "));
}

TEST_F(WatchServerTest, FiveHundredConcurrentRequests) {
  std::atomic<int> good{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < 500; ++i) {
    clients.emplace_back([&, i] {
      const char* page = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
      const std::string answer = request(i % 2 == 0 ? kGet : page);
      good += answer.starts_with("HTTP/1.1 200 ") && answer.ends_with(i % 2 == 0 ? "}" : "</html>\n");
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(good, 500);
}

TEST_F(WatchServerTest, ServesNoFiles) {
  for (const char* path : {"/log.csv", "/../log.csv", "/..%2flog.csv", "/%2e%2e/log.csv", "/..\\log.csv", "//log.csv",
                           "/./log.csv", "/data.json/../log.csv", "/data.json%00.csv", "/etc/passwd",
                           "/../../../../etc/passwd", "/%2fetc%2fpasswd", "file:///etc/passwd"}) {
    const std::string answer = request(std::string("GET ") + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_FALSE(answer.starts_with("HTTP/1.1 200 ")) << path;
    EXPECT_EQ(answer.find("step,tokens"), std::string::npos) << path;
  }
  expect_answering();
}

TEST_F(WatchServerTest, SurvivesMalformedRequests) {
  const auto before = contents(run());
  std::mt19937 random(7);
  const auto below = [&](std::size_t end) { return std::uniform_int_distribution<std::size_t>(0, end - 1)(random); };
  const auto noise = [&](std::size_t most) {
    std::string bytes(below(most + 1), '\0');
    for (char& byte : bytes) byte = static_cast<char>(below(256));
    return bytes;
  };
  const std::vector<std::string> methods = {"GET", "HEAD", "POST", "PUT", "DELETE", "PRI", "BREW", ""};
  const auto headers = std::to_array<std::string>(
      {"Host: localhost", "Content-Length: -1", "Content-Length: 99999999999999999999", "Transfer-Encoding: chunked",
       "Range: bytes=5-1,-,a", "Expect: 100-continue", "If-None-Match: \"", "Authorization: Bearer",
       "Accept-Encoding: br;q=x", "Connection: keep-alive, upgrade", "Host", ": ",
       "Content-Type: multipart/form-data"});
  for (int i = 0; i < 400; ++i) {
    std::string bytes = methods[below(methods.size())] + " /" + (below(2) == 0 ? "data.json?" : "") + noise(40);
    if (below(20) == 0) bytes += std::string(20000, 'x');
    bytes += below(8) == 0 ? " HTTP/9.9\r\n" : " HTTP/1.1\r\n";
    for (std::size_t k = below(6); k > 0; --k)
      bytes += (below(3) == 0 ? noise(60) : headers[below(headers.size())]) + (below(10) == 0 ? "\n" : "\r\n");
    if (below(5) != 0) bytes += "\r\n";
    bytes += noise(30);
    if (below(5) == 0) bytes[below(bytes.size())] = static_cast<char>(below(256));
    const std::string answer = request(bytes);
    EXPECT_TRUE(answer.empty() || answer.starts_with("HTTP/1.")) << i;
    if (i % 50 == 0) expect_answering();
  }
  for (int i = 0; i < 100; ++i) request(noise(300));
  expect_answering();
  EXPECT_EQ(contents(run()), before);
}

// Connections that send nothing, or their request byte by byte and never to its end.
class Crowd {
 public:
  Crowd(int port, int count) {
    for (int i = 0; i < count; ++i) connections_.push_back(connected(port));
    dripping_ = std::jthread([this](const std::stop_token& stop) {
      for (std::size_t k = 0; !stop.stop_requested(); ++k) {
        const char byte = k < kStart.size() ? kStart[k] : 'x';
        for (std::size_t i = 0; i < connections_.size(); i += 2) ::send(connections_[i], &byte, 1, MSG_NOSIGNAL);
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
    });
  }
  ~Crowd() {
    dripping_ = {};
    for (const int connection : connections_) close(connection);
  }

 private:
  static constexpr std::string_view kStart = "GET / HTTP/1.1\r\nHost: localhost\r\nX: ";
  std::vector<int> connections_;
  std::jthread dripping_;
};

TEST_F(WatchServerTest, SlowConnectionsDoNotBlock) {
  const Crowd crowd(server_.port, 200);
  for (int i = 0; i < 10; ++i) expect_answering();
}

TEST_F(WatchServerTest, MoreConnectionsThanPlacesDoNotBlock) {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  const rlimit more{files.rlim_max, files.rlim_max};
  if (files.rlim_max < 3000 || setrlimit(RLIMIT_NOFILE, &more) != 0) GTEST_SKIP() << "too few open files are allowed";
  const Crowd first(server_.port, 400), second(server_.port, 400), third(server_.port, 400);
  for (int i = 0; i < 10; ++i) expect_answering();
}

TEST_F(WatchServerTest, EndsAConnectionThatDoesNotFinishItsRequest) {
  const int client = connected(server_.port);
  send(client, "GET / HT", 8, MSG_NOSIGNAL);
  char byte = 0;
  EXPECT_EQ(recv(client, &byte, 1, 0), 0);
  close(client);
}

TEST_F(WatchServerTest, LimitsTheRequest) {
  const std::string get = "GET / HTTP/1.1\r\nHost: localhost\r\nX: ";
  EXPECT_TRUE(request(get + std::string(7000, 'x') + "\r\n\r\n").starts_with("HTTP/1.1 200 "));
  EXPECT_TRUE(request(get + std::string(9000, 'x') + "\r\n\r\n").starts_with("HTTP/1.1 431 "));
  EXPECT_TRUE(request(get + std::string(9000, 'x')).starts_with("HTTP/1.1 431 "));
  const std::string posted = request("POST / HTTP/1.1\r\nContent-Length: 100000\r\n\r\n" + std::string(100000, 'x'));
  EXPECT_TRUE(posted.starts_with("HTTP/1.1 405 "));
}

// RFC 9110, 14.2: a server may ignore the field; it then says that it knows no ranges.
TEST_F(WatchServerTest, AnswersRangesInWhole) {
  const std::string whole = request(kGet);
  std::string ranged = kGet;
  ranged.insert(ranged.size() - 2, "Range: bytes=0-3\r\n");
  EXPECT_EQ(request(ranged), whole);
  EXPECT_NE(whole.find("Accept-Ranges: none\r\n"), std::string::npos);
}

TEST_F(WatchServerTest, PortInUseIsAnError) {
  EXPECT_INPUT_ERROR(serve(*answers_, {.port = server_.port}), "cannot listen on 127.0.0.1 port");
  EXPECT_INPUT_ERROR(serve(*answers_, {.host = "192.0.2.1", .port = 0, .token = "0123456789abcdef"}),
                     "cannot listen on 192.0.2.1 port 0");
  expect_answering();
}

}  // namespace
}  // namespace gluon::lab
