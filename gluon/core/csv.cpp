#include "gluon/core/csv.h"

#include <algorithm>
#include <charconv>

#include "gluon/core/atomic_file.h"
#include "gluon/core/check.h"

namespace gluon {
namespace {

template <typename Number> Number parse(const CsvReader& reader, std::size_t column, std::string_view kind) {
  const std::string_view text = reader.text(column);
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  GLUON_CHECK(error == std::errc() && end == text.data() + text.size(), reader.where(), reader.columns()[column],
              " must be ", kind, ", got '", text, "'");
  return value;
}

}  // namespace

std::string csv_row(std::span<const std::string> cells) {
  std::string line;
  for (const std::string& cell : cells) {
    if (&cell != cells.data()) line += ',';
    if (cell.find_first_of(",\"\r\n") == std::string::npos) {
      line += cell;
      continue;
    }
    line += '"';
    for (const char c : cell) line.append(c == '"' ? 2 : 1, c);
    line += '"';
  }
  return line;
}

std::string csv_row(std::initializer_list<std::string> cells) {
  return csv_row(std::span(cells.begin(), cells.size()));
}

bool CsvCells::split(std::string_view line) {
  cells_.clear();
  unquoted_.clear();
  unquoted_.reserve(line.size());  // the views must not move
  if (line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
  if (line.ends_with('\r')) line.remove_suffix(1);
  for (std::size_t at = 0;; ++at) {
    if (at < line.size() && line[at] == '"') {
      if (!split_quoted(line, at)) return false;
    } else {
      const std::size_t end = std::min(line.find(',', at), line.size());
      cells_.push_back(line.substr(at, end - at));
      at = end;
    }
    if (at == line.size()) return true;
    if (line[at] != ',') return false;
  }
}

bool CsvCells::split_quoted(std::string_view line, std::size_t& at) {
  const std::size_t start = unquoted_.size();
  for (++at;; ++at) {
    const std::size_t quote = line.find('"', at);
    if (quote == std::string_view::npos) return false;
    unquoted_ += line.substr(at, quote - at);
    at = quote + 1;
    if (at == line.size() || line[at] != '"') break;
    unquoted_ += '"';
  }
  cells_.push_back(std::string_view(unquoted_).substr(start));
  return true;
}

bool read_line(std::istream& in, std::string& line, std::string_view origin) {
  line.clear();
  char part[4096];
  do {
    in.clear(in.rdstate() & ~std::ios::failbit);
    in.getline(part, sizeof part);
    line.append(part, static_cast<std::size_t>(in.gcount()));
    GLUON_CHECK(line.size() <= kLongestLine + 1, origin, " has a line of more than ", kLongestLine, " bytes");
  } while (in.fail() && !in.eof() && !in.bad());
  if (!in.good()) return false;
  line.pop_back();  // the break counts as read
  return true;
}

CsvReader::CsvReader(std::string_view origin, const std::filesystem::path& path)
    : origin_(join(origin, ": ", path.string())), buffer_(1 << 18) {
  check_regular(path, origin);
  file_.rdbuf()->pubsetbuf(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
  file_.open(path, std::ios::binary);
  GLUON_CHECK(file_, origin, ": cannot read ", path.string());
  next_line();
  GLUON_CHECK(!file_.bad(), origin, ": cannot read ", path.string());
  GLUON_CHECK(cells_.split(line_), where(), "unbalanced quotes");
  for (std::size_t i = 0; i < cells_.size(); ++i) columns_.emplace_back(cells_[i]);
}

std::vector<std::size_t> CsvReader::find(std::span<const std::string_view> names) const {
  std::vector<std::size_t> positions;
  std::string missing;
  for (const std::string_view name : names) {
    const auto found = std::find(columns_.begin(), columns_.end(), name);
    GLUON_CHECK(found == columns_.end() || std::find(found + 1, columns_.end(), name) == columns_.end(), origin_,
                ": column ", name, " appears more than once");
    if (found == columns_.end()) (missing += missing.empty() ? "" : ", ") += name;
    positions.push_back(static_cast<std::size_t>(found - columns_.begin()));
  }
  GLUON_CHECK(missing.empty(), origin_, " has no column ", missing);
  return positions;
}

std::vector<std::size_t> CsvReader::find(std::initializer_list<std::string_view> names) const {
  return find(std::span(names.begin(), names.size()));
}

bool CsvReader::next() {
  while (next_line()) {
    GLUON_CHECK(cells_.split(line_), where(), "unbalanced quotes");
    if (cells_.size() == 1 && cells_[0].empty()) continue;
    GLUON_CHECK(cells_.size() == columns_.size(), where(), "expected ", columns_.size(),
                " cells as in the header, got ", cells_.size());
    return true;
  }
  GLUON_CHECK(!file_.bad(), where(), "cannot read further");
  return false;
}

bool CsvReader::next_line() {
  ++line_number_;
  if (!read_line(file_, line_, origin_)) return false;
  bytes_ += line_.size() + 1;
  return true;
}

int64_t CsvReader::integer(std::size_t column) const { return parse<int64_t>(*this, column, "a whole number"); }

double CsvReader::number(std::size_t column) const { return parse<double>(*this, column, "a number"); }

std::optional<double> CsvReader::number_or_empty(std::size_t column) const {
  if (text(column).empty()) return std::nullopt;
  return parse<double>(*this, column, "a number or empty");
}

std::string CsvReader::where() const { return join(origin_, " line ", line_number_, ": "); }

}  // namespace gluon
