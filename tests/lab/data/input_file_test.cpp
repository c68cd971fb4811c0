#include "lab/data/input_file.h"

#include "tests/expect_error.h"
#include "tests/lab/data/packed.h"
#include "tests/temporary_folder.h"

namespace gluon::lab {
namespace {

std::string some_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  uint32_t state = 1;
  for (char& byte : bytes) byte = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  return bytes;
}

TEST(ReadFile, ReadsPlainAndXzFiles) {
  const TemporaryFolder folder;
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{65536}, std::size_t{300000}}) {
    const std::string bytes = some_bytes(size);
    EXPECT_EQ(read_file(folder.write("plain.dat", bytes)), bytes);
    EXPECT_EQ(read_file(folder.write("packed.dat.xz", packed(bytes))), bytes);
  }
  // Several xz streams.
  EXPECT_EQ(read_file(folder.write("two.xz", packed("first ") + packed("second"))), "first second");
}

TEST(ReadFile, BadFiles) {
  const TemporaryFolder folder;
  EXPECT_INPUT_ERROR(read_file(folder.path() / "none.txt"), "none.txt': No such file or directory");
  EXPECT_INPUT_ERROR(read_file(folder.path()), "it is a folder, expected a file");
  const std::string good = packed(some_bytes(100000));
  EXPECT_INPUT_ERROR(read_file(folder.write("cut.xz", good.substr(0, good.size() / 2))),
                     "cut.xz' is truncated: its xz data ends too early");
  EXPECT_INPUT_ERROR(read_file(folder.write("empty.xz", "")), "empty.xz' is truncated");
  EXPECT_INPUT_ERROR(read_file(folder.write("text.xz", "this is plain text")), "text.xz' is not in the xz format");
  std::string broken = good;
  broken[broken.size() / 2] = static_cast<char>(broken[broken.size() / 2] ^ 1);
  EXPECT_INPUT_ERROR(read_file(folder.write("broken.xz", broken)),
                     "broken.xz' is corrupt: its xz data does not unpack");
}

TEST(MappedFile, ACopyKeepsTheBytes) {
  const TemporaryFolder folder;
  MappedFile file(folder.write("a", "alpha"));
  const MappedFile copy = file;
  file = MappedFile(folder.write("b", ""));
  EXPECT_TRUE(file.bytes().empty());
  EXPECT_EQ(copy.bytes(), "alpha");
}

TEST(Expand, FilesFoldersAndPatterns) {
  const TemporaryFolder folder;
  const auto b = folder.write("b.bin", "b");
  const auto a = folder.write("a.bin", "a");
  const auto text = folder.write("c.txt", "c");
  const auto odd = folder.write("odd[1].txt", "odd");
  folder.write(".hidden", "h");
  std::filesystem::create_directory(folder.path() / "sub.bin");
  using Paths = std::vector<std::filesystem::path>;
  EXPECT_EQ(expand(text.string()), Paths{text});
  EXPECT_EQ(expand(folder.path().string()), (Paths{a, b, text, odd}));
  EXPECT_EQ(expand((folder.path() / "*.bin").string()), (Paths{a, b}));
  EXPECT_EQ(expand((folder.path() / "[bc].*").string()), (Paths{b, text}));
  // A file that exists is not treated as a pattern.
  EXPECT_EQ(expand(odd.string()), Paths{odd});
}

TEST(Expand, NoMatchIsAnError) {
  const TemporaryFolder folder;
  EXPECT_INPUT_ERROR(expand((folder.path() / "*.bin").string()), "/*.bin'");
  EXPECT_INPUT_ERROR(expand("no/such/file.txt"), "no file matches 'no/such/file.txt'");
  EXPECT_INPUT_ERROR(expand(""), "no file matches ''");
  EXPECT_INPUT_ERROR(expand(folder.path().string()), "' contains no files");
}

}  // namespace
}  // namespace gluon::lab
