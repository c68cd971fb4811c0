#include "lab/data/inspect.h"

#include <cstring>
#include <vector>

#include "lab/data/token_shard.h"
#include "tests/expect_error.h"
#include "tests/lab/data/packed.h"
#include "tests/lab/data/shared_data.h"
#include "tests/temporary_folder.h"

namespace gluon::lab {
namespace {

std::string safetensors(const std::string& header, std::size_t data_bytes) {
  std::string bytes(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + header + std::string(data_bytes, '\1');
}

TEST(Inspect, KnowsATokenShard) {
  const TemporaryFolder folder;
  write_token_shard(folder.path() / "a.bin", std::vector<uint16_t>{1, 50256, 7});
  EXPECT_EQ(inspect_file(folder.path() / "a.bin"), "token shard: 3 tokens, the largest is 50256");
  const std::string bytes = read_file(folder.path() / "a.bin");
  EXPECT_EQ(inspect_file(folder.write("b.bin.xz", packed(bytes))),
            "token shard in xz: 1030 bytes; unpack it to train on it");
  EXPECT_INPUT_ERROR(inspect_file(folder.write("c.bin", bytes.substr(0, 1028))), "c.bin' is truncated");
}

TEST(Inspect, KnowsText) {
  const TemporaryFolder folder;
  EXPECT_EQ(inspect_file(folder.write("a.txt", "one\ntwo \u4e2d\U0001f600\n")),
            "text: 16 bytes, 2 lines, UTF-8");
  EXPECT_EQ(inspect_file(folder.write("latin.txt", "caf\xe9\n")), "text: 5 bytes, 1 line, not UTF-8");
  for (const std::string wrong :
       {"\xc0\x80", "\xed\xa0\x80", "\xf5\x80\x80\x80", "\xf0\x80\x80\x80", "\xe2\x82", "\x80"}) {
    EXPECT_NE(inspect_file(folder.write("w.txt", wrong)).find("not UTF-8"), std::string::npos);
  }
  const std::string xz = packed("hello\n");
  EXPECT_EQ(inspect_file(folder.write("b.txt.xz", xz)),
            "text: 6 bytes, 1 line, UTF-8\nunpacked from " + std::to_string(xz.size()) + " bytes of xz");
  EXPECT_EQ(inspect_file(folder.write("empty.txt", "")), "empty file");
}

TEST(Inspect, KnowsACifarBatch) {
  const TemporaryFolder folder;
  std::string bytes;
  for (const char label : {3, 3, 9}) bytes += label + std::string(3072, '\x80');
  EXPECT_EQ(inspect_file(folder.write("test_batch.bin", bytes)),
            "CIFAR-10 batch: 3 images; of labels 0..9: 0 0 0 2 0 0 0 0 0 1");
  EXPECT_EQ(inspect_file(folder.write("test_batch.bin.xz", packed(bytes))).find("CIFAR-10 batch: 3 images"),
            0U);
}

TEST(Inspect, KnowsSafetensors) {
  const TemporaryFolder folder;
  const std::string header =
      R"({"__metadata__":{"step":"7"},"head":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("bias":{"dtype":"BF16","shape":[],"data_offsets":[24,26]}})";
  const std::string bytes = safetensors(header, 26);
  const std::string expected =
      "safetensors: 2 tensors, " + std::to_string(bytes.size()) + " bytes\n  head F32 [2, 3]\n  bias BF16 []";
  EXPECT_EQ(inspect_file(folder.write("a.safetensors", bytes)), expected);
  EXPECT_EQ(inspect_file(folder.write("no_name", bytes)), expected);
  EXPECT_INPUT_ERROR(inspect_file(folder.write("b.safetensors", bytes.substr(0, 60))),
                     "b.safetensors' is truncated: 60 bytes, its header alone takes");
  EXPECT_INPUT_ERROR(inspect_file(folder.write("c.safetensors", bytes.substr(0, bytes.size() - 1))),
                     "tensor 'bias' takes bytes 24..26 of 25");
  EXPECT_INPUT_ERROR(inspect_file(folder.write("d.safetensors", safetensors("[1]", 0))),
                     "d.safetensors' is corrupt: its header is no JSON object");
  EXPECT_INPUT_ERROR(inspect_file(folder.write("e.safetensors", safetensors(R"({"w":{"dtype":"F32"}})", 0))),
                     "tensor 'w' is {\"dtype\":\"F32\"}, expected dtype, shape and data_offsets");
  EXPECT_INPUT_ERROR(inspect_file(folder.write("f.safetensors", "short")),
                     "f.safetensors' is truncated: 5 bytes");
}

TEST(Inspect, ShowsTheFirstBytesOfAnythingElse) {
  const TemporaryFolder folder;
  EXPECT_EQ(inspect_file(folder.write("a", std::string("\x7f"
                                                       "ELF\0\1",
                                                       6))),
            "unknown: 6 bytes that begin with 7f 45 4c 46 00 01");
  EXPECT_INPUT_ERROR(inspect_file(folder.path() / "none"), "none': No such file or directory");
  EXPECT_INPUT_ERROR(inspect_file(folder.path()), "it is a folder, expected a file");
  EXPECT_INPUT_ERROR(inspect_file(folder.write("a.xz", "text")), "a.xz' is not in the xz format");
}

TEST(Inspect, KnowsTheRealFiles) {
  GLUON_SHARED_DATA_OR_SKIP(cifar, "cifar10/test_batch.bin.xz");
  EXPECT_EQ(inspect_file(cifar).find("CIFAR-10 batch: 10000 images; of labels 0..9: 1000 1000 1000"), 0U);
  GLUON_SHARED_DATA_OR_SKIP(text, "text/tinyshakespeare.txt");
  EXPECT_EQ(inspect_file(text), "text: 1115394 bytes, 40000 lines, UTF-8");
}

}  // namespace
}  // namespace gluon::lab
