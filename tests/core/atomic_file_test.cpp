#include "gluon/core/atomic_file.h"

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
  EXPECT_INPUT_ERROR(read_text("/dev/zero", "test"), "test: /dev/zero has more than 16777216 bytes");
}

}  // namespace
}  // namespace gluon
