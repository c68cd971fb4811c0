#include "gluon/core/atomic_file.h"

#include <sys/stat.h>

#include "tests/expect_error.h"
#include "tests/temporary_folder.h"

namespace gluon {
namespace {

TEST(ReadText, ReadsWhatWasWritten) {
  const TemporaryFolder folder;
  for (const std::size_t size : {0, 1, 4095, 4096, 4097, 100000}) {
    const std::string text(size, 'x');
    write_text_atomically(folder.path() / "a", text);
    EXPECT_EQ(read_text(folder.path() / "a", "test"), text);
  }
}

TEST(ReadText, BadFiles) {
  const TemporaryFolder folder;
  EXPECT_INPUT_ERROR(read_text(folder.path() / "none", "test"), "test: cannot read ");
  EXPECT_INPUT_ERROR(read_text(folder.path(), "test"), "test: cannot read ");
  EXPECT_INPUT_ERROR(read_text("/dev/zero", "test"), "test: cannot read /dev/zero: it is not a regular file");
  std::filesystem::resize_file(folder.write("large", ""), kMostTextBytes + 1);
  EXPECT_INPUT_ERROR(read_text(folder.path() / "large", "test"), "large has more than 16777216 bytes");
}

TEST(CheckRegular, PipesAreNotAndLinksToFilesAre) {
  const TemporaryFolder folder;
  const std::filesystem::path pipe = folder.path() / "pipe", link = folder.path() / "link";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::filesystem::path& path : {pipe, folder.path()}) {
    EXPECT_INPUT_ERROR(check_regular(path, "test"),
                       "test: cannot read " + path.string() + ": it is not a regular file");
  }
  EXPECT_INPUT_ERROR(read_text(pipe, "test"), "pipe: it is not a regular file");
  EXPECT_INPUT_ERROR(check_regular(folder.path() / "none", "test"), "none: No such file or directory");
  std::filesystem::create_symlink(folder.write("file", "text"), link);
  EXPECT_NO_THROW(check_regular(link, "test"));
  EXPECT_EQ(read_text(link, "test"), "text");
}

}  // namespace
}  // namespace gluon
