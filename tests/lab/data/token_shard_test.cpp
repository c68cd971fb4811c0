#include "lab/data/token_shard.h"

#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <vector>

#include "tests/expect_error.h"
#include "tests/temporary_folder.h"

namespace gluon::lab {
namespace {

std::string shard_bytes(int32_t magic, int32_t version, int32_t count, std::size_t tokens) {
  std::string bytes(1024 + 2 * tokens, '\0');
  const int32_t header[] = {magic, version, count};
  std::memcpy(bytes.data(), header, sizeof header);
  return bytes;
}

TEST(TokenShard, RoundTrip) {
  const TemporaryFolder folder;
  std::vector<uint16_t> tokens(1000);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint16_t>(i * 67);
  write_token_shard(folder.path() / "a.bin", tokens);
  const TokenShard shard(folder.path() / "a.bin");
  EXPECT_EQ(shard.size(), 1000);
  std::vector<uint16_t> read(1000);
  shard.read(0, read);
  EXPECT_EQ(read, tokens);
  shard.read(7, std::span(read).first(2));
  EXPECT_EQ(read[1], tokens[8]);
}

TEST(TokenShard, WritesThePublicFormat) {
  const TemporaryFolder folder;
  write_token_shard(folder.path() / "a.bin", std::vector<uint16_t>{258, 7});
  std::string expected = shard_bytes(20240520, 1, 2, 2);
  expected.replace(1024, 4, std::string_view("\x02\x01\x07\x00", 4));
  EXPECT_EQ(read_file(folder.path() / "a.bin"), expected);
  EXPECT_EQ(expected.substr(0, 4), std::string_view("\x88\xd8\x34\x01", 4));
}

TEST(TokenShard, RejectsBadFiles) {
  const TemporaryFolder folder;
  const std::vector<std::pair<std::string, const char*>> cases = {
      {"", "a.bin' is empty"},
      {shard_bytes(20240520, 1, 5, 5).substr(0, 100), "a.bin' is truncated: 100 bytes, its header alone takes 1024"},
      {shard_bytes(20240521, 1, 5, 5), "a.bin' is not a token shard: it does not start with the number 20240520"},
      {"short text", "a.bin' is not a token shard"},
      {shard_bytes(20240520, 2, 5, 5), "a.bin' has version 2, expected 1"},
      {shard_bytes(20240520, 1, 0, 0), "a.bin' has no tokens: its header counts 0"},
      {shard_bytes(20240520, 1, -3, 5), "a.bin' has no tokens: its header counts -3"},
      {shard_bytes(20240520, 1, 5, 4), "is truncated: 1032 bytes, its header promises 5 tokens, which take 1034"},
      {shard_bytes(20240520, 1, 5, 6), "a.bin' is too long: 1036 bytes"}};
  for (const auto& [bytes, message] : cases) EXPECT_INPUT_ERROR(TokenShard(folder.write("a.bin", bytes)), message);
}

TEST(TokenShard, WritesAtomically) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a.bin";
  write_token_shard(path, std::vector<uint16_t>{1, 2, 3});
  EXPECT_INPUT_ERROR(write_token_shard(path, {}), "a.bin' needs at least one token, got none");
  write_token_shard(path, std::vector<uint16_t>{4});
  std::vector<uint16_t> read(1);
  TokenShard(path).read(0, read);
  EXPECT_EQ(read.front(), 4);
  EXPECT_INPUT_ERROR(write_token_shard(folder.path() / "none" / "b.bin", std::vector<uint16_t>{1}),
                     "b.bin': No such file or directory");
  // A failed write leaves no temporary file.
  std::filesystem::create_directories(folder.path() / "c.bin" / "full");
  EXPECT_INPUT_ERROR(write_token_shard(folder.path() / "c.bin", std::vector<uint16_t>{1}), "cannot write token shard");
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    EXPECT_EQ(entry.path().string().find(".tmp"), std::string::npos) << entry.path();
  }
}

TEST(TokenShard, FullDiskIsAnError) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a.bin";
  rlimit unlimited{};
  getrlimit(RLIMIT_FSIZE, &unlimited);
  const rlimit small{.rlim_cur = 1000, .rlim_max = unlimited.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  EXPECT_INPUT_ERROR(write_token_shard(path, std::vector<uint16_t>{1}), "a.bin': File too large");
  setrlimit(RLIMIT_FSIZE, &unlimited);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace gluon::lab
