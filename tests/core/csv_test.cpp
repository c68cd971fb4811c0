#include "gluon/core/csv.h"

#include <sys/stat.h>

#include <cmath>

#include "tests/expect_error.h"
#include "tests/temporary_folder.h"

namespace gluon {
namespace {

TEST(Csv, RowsAreQuotedWhereNeeded) {
  EXPECT_EQ(csv_row({"a", "", "b c"}), "a,,b c");
  EXPECT_EQ(csv_row({"a,b", "say \"x\"", "two\nlines"}), "\"a,b\",\"say \"\"x\"\"\",\"two\nlines\"");
}

TEST(Csv, ReadsWhatItWrites) {
  const TemporaryFolder folder;
  const std::vector<std::string> names = {"step", "a,b", "\"quoted\"", ""};
  const std::vector<std::string> cells = {"7", "", "x,\"y\",z", "1.5"};
  CsvReader csv("test", folder.write("a.csv", csv_row(names) + "\n" + csv_row(cells) + "\n"));
  EXPECT_EQ(csv.columns(), names);
  ASSERT_TRUE(csv.next());
  for (std::size_t i = 0; i < cells.size(); ++i) EXPECT_EQ(csv.text(i), cells[i]);
  EXPECT_EQ(csv.integer(0), 7);
  EXPECT_EQ(csv.number_or_empty(1), std::nullopt);
  EXPECT_EQ(csv.number_or_empty(3), 1.5);
  EXPECT_FALSE(csv.next());
}

TEST(Csv, NumbersOfADivergedRun) {
  const TemporaryFolder folder;
  CsvReader csv("test", folder.write("a.csv", "a,b,c,d\nnan,-nan,inf,-inf\n"));
  ASSERT_TRUE(csv.next());
  EXPECT_TRUE(std::isnan(csv.number(0)));
  EXPECT_TRUE(std::isnan(csv.number(1)));
  EXPECT_EQ(csv.number(2), HUGE_VAL);
  EXPECT_EQ(csv.number(3), -HUGE_VAL);
}

TEST(Csv, CountsTheBytesOfCompleteRows) {
  const TemporaryFolder folder;
  CsvReader csv("test", folder.write("a.csv",
                                     "\xEF\xBB\xBF"
                                     "a,b\r\n\r\n1,2\r\n3,4"));
  EXPECT_EQ(csv.columns(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(csv.bytes(), 8u);
  ASSERT_TRUE(csv.next());
  EXPECT_EQ(csv.integer(1), 2);
  EXPECT_EQ(csv.bytes(), 15u);
  EXPECT_FALSE(csv.next());
  EXPECT_EQ(csv.bytes(), 15u);
  EXPECT_EQ(CsvReader("test", folder.write("a.csv", "a,b")).bytes(), 0u);
}

TEST(Csv, FindsColumnsByName) {
  const TemporaryFolder folder;
  const CsvReader csv("test", folder.write("a.csv", "loss,step,x,x\n"));
  EXPECT_EQ(csv.find({"step", "loss"}), (std::vector<std::size_t>{1, 0}));
  EXPECT_INPUT_ERROR(csv.find({"step", "val", "seconds"}), "a.csv has no column val, seconds");
  EXPECT_INPUT_ERROR(csv.find({"x"}), "a.csv: column x appears more than once");
}

TEST(Csv, LinesHaveABound) {
  const TemporaryFolder folder;
  // Around the size of the reader's buffer, and the longest there may be.
  for (const std::size_t size : {0, 1, 4094, 4095, 4096, 4097, 8191, 100000, (1 << 20) - 1}) {
    const std::string cell(size, 'x');
    CsvReader csv("test", folder.write("a.csv", "a,b\n" + cell + ",\n2,\n"));
    ASSERT_TRUE(csv.next()) << size;
    EXPECT_EQ(csv.text(0), cell);
    ASSERT_TRUE(csv.next()) << size;
    EXPECT_EQ(csv.text(0), "2");
    EXPECT_FALSE(csv.next());
  }
  const auto path = folder.write("a.csv", "a,b\n" + std::string(2 << 20, 'x'));
  EXPECT_INPUT_ERROR(CsvReader("test", path).next(), "a.csv has a line of more than 1048576 bytes");
  EXPECT_INPUT_ERROR(CsvReader("test", "/dev/zero"), "test: cannot read /dev/zero: it is not a regular file");
}

TEST(Csv, BadFiles) {
  const TemporaryFolder folder;
  const auto read = [&](const std::string& text) {
    CsvReader csv("test", folder.write("a.csv", text));
    while (csv.next()) {
      csv.integer(0);
      csv.number(1);
      csv.number_or_empty(2);
    }
  };
  const std::string start = "test: " + (folder.path() / "a.csv").string();
  EXPECT_INPUT_ERROR(CsvReader("test", folder.path() / "none"),
                     "test: cannot read " + (folder.path() / "none").string());
  EXPECT_INPUT_ERROR(CsvReader("test", folder.path()), "test: cannot read " + folder.path().string());
  ASSERT_EQ(mkfifo((folder.path() / "pipe").c_str(), 0600), 0);
  EXPECT_INPUT_ERROR(CsvReader("test", folder.path() / "pipe"), "pipe: it is not a regular file");
  EXPECT_INPUT_ERROR(read("\"a,b\n"), start + " line 1: unbalanced quotes");
  EXPECT_INPUT_ERROR(read("a,b,c\n1,2,3\n\"1\"x,2,3\n"), start + " line 3: unbalanced quotes");
  EXPECT_INPUT_ERROR(read("a,b,c\n\n1,2\n"), start + " line 3: expected 3 cells as in the header, got 2");
  EXPECT_INPUT_ERROR(read("a,b,c\n1.5,2,3\n"), start + " line 2: a must be a whole number, got '1.5'");
  EXPECT_INPUT_ERROR(read("a,b,c\n1,,3\n"), start + " line 2: b must be a number, got ''");
  EXPECT_INPUT_ERROR(read("a,b,c\n1,2,x\n"), start + " line 2: c must be a number or empty, got 'x'");
}

}  // namespace
}  // namespace gluon
