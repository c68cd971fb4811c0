// Study: an experiment of the paper that the program repeats, and what came of it.
//
//   Study::run(Workbench)  ->  StudyResult  ->  write_study: study.md, one SVG and one CSV per figure
//
// A finding sets a number of the paper beside ours. The verdict follows from a criterion that stands in the table, chosen
// before the run: "agrees" means that the criterion holds here, nothing more.

#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lab/report/figure.h"
#include "lab/report/report_data.h"

namespace gluon::lab {

class Workbench;

enum class Verdict { kAgrees, kDiffers, kCannotTell };

struct Finding {
  std::string what;       // "L1 of the blocks, median over 72 layers"
  std::string paper;      // its number or sentence
  std::string here;       // ours
  std::string criterion;  // "within 25 %"; where it cannot tell: why
  Verdict verdict = Verdict::kCannotTell;
};

struct Table {
  std::string title;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
};

struct StudyResult {
  std::vector<std::string> notes;  // what was trained, and what was scaled down
  std::vector<Finding> findings;
  std::vector<Table> tables;
  std::vector<Figure> figures;
  std::vector<ReportSweep> heatmaps;
};

struct Study {
  const char* name;   // "nanogpt-smoothness"
  const char* title;  // what is shown, in one line
  const char* paper;  // where the paper has it: "figures 3 to 6"
  StudyResult (*run)(Workbench& bench);
};

/// "agrees" where `holds`, else "differs".
Verdict verdict(bool holds);

/// A finding about one number: it agrees when it lies within `share` of the paper's, as in 0.25 for 25 %.
Finding compare(const std::string& what, double paper, double here, double share);

/// The findings as lines for a terminal.
std::string findings_text(const StudyResult& result);

/// The study as a page of Markdown; `command` is the one that repeats it.
std::string study_page(const Study& study, const StudyResult& result, const std::string& command);

/// Writes study.md and the figures into `folder`, which is created; files of an earlier run are replaced. Throws
/// InputError before writing when a figure's name would be no link in Markdown: it has a space or a slash.
void write_study(const Study& study, const StudyResult& result, const std::string& command,
                 const std::filesystem::path& folder);

}  // namespace gluon::lab
