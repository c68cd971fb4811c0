// CSV files: one row per line, the first line names the columns, cells are quoted as in RFC 4180.
//
//   CsvReader reader("run", path);
//   const auto at = reader.find({"step", "loss"});
//   while (reader.next()) use(reader.integer(at[0]), reader.number(at[1]));
//
// All files of the project go through it: log.csv, smoothness.csv, sweep.csv and the figures' data. A program may be
// killed while it writes, so a last line without a line break is ignored: it may have been cut inside a number.

#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gluon {

/// The cells as one line without its break; cells with commas, quotes or line breaks are quoted. CsvReader cannot read
/// cells with line breaks.
std::string csv_row(std::span<const std::string> cells);
std::string csv_row(std::initializer_list<std::string> cells);

/// The cells of a line. They are views into the line or into this object, valid until the next split().
class CsvCells {
 public:
  /// Returns false on a quote that is not closed or stands inside a cell. A byte order mark at the start and a \r at
  /// the end are ignored: spreadsheets write both.
  bool split(std::string_view line);

  std::size_t size() const { return cells_.size(); }
  std::string_view operator[](std::size_t i) const { return cells_[i]; }

 private:
  bool split_quoted(std::string_view line, std::size_t& at);

  std::vector<std::string_view> cells_;
  std::string unquoted_;
};

/// The longest line that is read, in bytes.
inline constexpr std::size_t kLongestLine = std::size_t{1} << 20;

/// Takes a line without its break off `in`; false at the end, with what is left in `line` when the last one has no
/// break. Throws InputError that starts with `origin` when it is longer than kLongestLine.
bool read_line(std::istream& in, std::string& line, std::string_view origin);

/// Reads a file row by row. Its errors are InputErrors that start with "ORIGIN: FILE". Empty lines are skipped.
class CsvReader {
 public:
  /// Opens the file and reads the header. Throws when the file cannot be read or is not a regular one.
  CsvReader(std::string_view origin, const std::filesystem::path& path);

  const std::vector<std::string>& columns() const { return columns_; }

  /// The positions of these columns. Throws when one is missing or appears twice.
  std::vector<std::size_t> find(std::span<const std::string_view> names) const;
  std::vector<std::size_t> find(std::initializer_list<std::string_view> names) const;

  /// Moves to the next row; false at the end. Throws when it has more or fewer cells than the header.
  bool next();

  /// Cells of the current row. The numbers may be "nan" and "inf"; they throw on other text.
  std::string_view text(std::size_t column) const { return cells_[column]; }
  int64_t integer(std::size_t column) const;
  double number(std::size_t column) const;
  std::optional<double> number_or_empty(std::size_t column) const;

  /// "ORIGIN: FILE line N: ", the start of an error about the current row.
  std::string where() const;

  /// Size of the file up to the end of the current row; 0 when even the header has no line break.
  std::uintmax_t bytes() const { return bytes_; }

 private:
  bool next_line();

  std::string origin_;  // "ORIGIN: FILE"
  std::vector<char> buffer_;
  std::ifstream file_;
  std::string line_;
  int64_t line_number_ = 0;
  std::uintmax_t bytes_ = 0;
  std::vector<std::string> columns_;
  CsvCells cells_;
};

}  // namespace gluon
