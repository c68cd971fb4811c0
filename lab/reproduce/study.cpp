#include "lab/reproduce/study.h"

#include <cmath>

#include "gluon/core/atomic_file.h"
#include "gluon/core/check.h"
#include "lab/report/heatmap.h"

namespace gluon::lab {
namespace {

std::string verdict_text(Verdict verdict) {
  switch (verdict) {
    case Verdict::kAgrees: return "agrees";
    case Verdict::kDiffers: return "differs";
    case Verdict::kCannotTell: return "cannot tell";
  }
  return {};
}

// A bar would end a cell, a line break the table.
std::string cell_text(const std::string& text) {
  std::string cell;
  for (const char c : text) cell += c == '|' ? "\\|" : c == '\n' ? " " : std::string(1, c);
  return cell;
}

std::string row_text(const std::vector<std::string>& cells) {
  std::string text = "|";
  for (const std::string& cell : cells) text += join(" ", cell_text(cell), cell.empty() ? "|" : " |");
  return text + "\n";
}

std::string table_text(const std::vector<std::string>& columns, const std::vector<std::vector<std::string>>& rows) {
  std::string text = row_text(columns) + "|";
  for (std::size_t i = 0; i < columns.size(); ++i) text += "---|";
  text += "\n";
  for (const auto& row : rows) text += row_text(row);
  return text;
}

void check_names(const StudyResult& result) {
  const auto check = [](const std::string& name) {
    GLUON_CHECK(!name.empty() && name.find_first_of(" /()<>") == std::string::npos,
                "reproduce: a figure's name is that ",
                "of its files and a link; expected one without spaces, slashes and brackets, got '", name, "'");
  };
  for (const Figure& figure : result.figures) check(figure.name);
  for (const ReportSweep& heatmap : result.heatmaps) check(heatmap.name);
}

}  // namespace

Verdict verdict(bool holds) { return holds ? Verdict::kAgrees : Verdict::kDiffers; }

Finding compare(const std::string& what, double paper, double here, double share) {
  return {what, rounded(paper), rounded(here), join("within ", 100 * share, " %"),
          verdict(std::abs(here - paper) <= share * std::abs(paper))};
}

std::string findings_text(const StudyResult& result) {
  std::string text;
  for (const Finding& finding : result.findings) {
    text += join(verdict_text(finding.verdict), ": ", finding.what, ": paper ", finding.paper, ", here ", finding.here,
                 " (", finding.criterion, ")\n");
  }
  return text;
}

std::string study_page(const Study& study, const StudyResult& result, const std::string& command) {
  std::string page = join("# ", study.title, "\n\nIn the paper: ", study.paper, ".\n\n    ", command, "\n");
  for (const std::string& note : result.notes) page += join("\n* ", note);
  if (!result.notes.empty()) page += "\n";
  if (!result.findings.empty()) {
    std::vector<std::vector<std::string>> rows;
    for (const Finding& finding : result.findings) {
      rows.push_back({finding.what, finding.paper, finding.here, finding.criterion, verdict_text(finding.verdict)});
    }
    page += join("\n", table_text({"what", "paper", "here", "it agrees if", "verdict"}, rows));
  }
  for (const Table& table : result.tables)
    page += join("\n**", table.title, "**\n\n", table_text(table.columns, table.rows));
  for (const Figure& figure : result.figures) page += join("\n![", figure.title, "](", figure.name, ".svg)\n");
  for (const ReportSweep& heatmap : result.heatmaps) page += join("\n![", heatmap.name, "](", heatmap.name, ".svg)\n");
  return page;
}

void write_study(const Study& study, const StudyResult& result, const std::string& command,
                 const std::filesystem::path& folder) {
  check_names(result);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  GLUON_CHECK(!error, "reproduce: cannot create ", folder.string(), ": ", error.message());
  for (const Figure& figure : result.figures) {
    write_text_atomically(folder / (figure.name + ".svg"), figure_svg(figure));
    write_text_atomically(folder / (figure.name + ".csv"), figure_csv(figure));
  }
  for (const ReportSweep& heatmap : result.heatmaps) {
    write_text_atomically(folder / (heatmap.name + ".svg"), heatmap_svg(heatmap));
    write_text_atomically(folder / (heatmap.name + ".csv"), heatmap_csv(heatmap));
  }
  write_text_atomically(folder / "study.md", study_page(study, result, command));
}

}  // namespace gluon::lab
