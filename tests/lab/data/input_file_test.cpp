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

TEST(ReadFile, XzStreamsMayBePaddedButNotFollowedByOtherBytes) {
  const TemporaryFolder folder;
  const std::string good = packed("text");
  const auto read = [&](const std::string& bytes) { return read_file(folder.write("a.xz", bytes)); };
  EXPECT_EQ(read(good + std::string(8, '\0')), "text");
  EXPECT_EQ(read(good + std::string(4, '\0') + good), "texttext");
  EXPECT_INPUT_ERROR(read(good + "junk"), "a.xz' has 4 bytes after its xz data that are not xz");
  EXPECT_INPUT_ERROR(read(good + std::string(1000, 'x')), "a.xz' has 1000 bytes after its xz data");
  EXPECT_INPUT_ERROR(read(good + std::string(3, '\0')), "a.xz' has 3 bytes after its xz data");
  EXPECT_INPUT_ERROR(read(good + std::string(4, '\0') + "x"), "a.xz' has 1 bytes after its xz data");
  EXPECT_INPUT_ERROR(read(good + good.substr(0, 3)), "a.xz' is truncated: its xz data ends too early");
  EXPECT_INPUT_ERROR(read(good + good.substr(0, good.size() - 1)), "a.xz' is truncated: its xz data ends too early");
}

TEST(ReadFile, RefusesWhatTakesTooMuchMemory) {
  const TemporaryFolder folder;
  constexpr std::size_t kBomb = std::size_t{100} << 20;
  const std::string bomb = packed(std::string(kBomb, '\0'));
  EXPECT_LT(bomb.size(), 20000u);
  const auto path = folder.write("bomb.xz", bomb);
  EXPECT_EQ(read_file(path).size(), kBomb);
  // The index says it before anything is unpacked. Without one, unpacking stops at the limit.
  EXPECT_INPUT_ERROR(read_file(path, kBomb - 1),
                     "bomb.xz' unpacks to at least 104857600 bytes, at most 104857599 are read into memory");
  EXPECT_INPUT_ERROR(read_file(folder.write("bomb.xz", bomb.substr(0, bomb.size() - 12)), 1 << 20),
                     " bytes, at most 1048576 are read into memory, half of what this machine has");
  EXPECT_INPUT_ERROR(read_file(folder.write("bomb.xz", bomb + bomb), kBomb + 1), "at least 209715200 bytes");
  EXPECT_INPUT_ERROR(read_file(folder.write("plain", "12345"), 4),
                     "plain' has 5 bytes, at most 4 are read into memory");
  EXPECT_GT(memory_limit(), uint64_t{1} << 26);
}

TEST(InputFile, ReadsPartsAndNoticesACut) {
  const TemporaryFolder folder;
  const auto path = folder.write("a", "alphabet");
  const InputFile file(path), copy = file;
  const auto read = [](const InputFile& from, int64_t offset, std::size_t count) {
    std::string bytes(count, ' ');
    from.read(offset, bytes.data(), count);
    return bytes;
  };
  EXPECT_EQ(file.size(), 8);
  EXPECT_EQ(read(file, 2, 4), "phab");
  std::filesystem::resize_file(path, 4);
  EXPECT_EQ(read(copy, 0, 4), "alph");
  EXPECT_INPUT_ERROR(read(copy, 2, 4), "a' was cut from 8 to 4 bytes while it was read");
  // Replaced by another file of its name, it stays what it was.
  const auto other = folder.write("b", "alphabet");
  const InputFile kept(other);
  std::filesystem::rename(folder.write("c", "xy"), other);
  EXPECT_EQ(read(kept, 0, 8), "alphabet");
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
