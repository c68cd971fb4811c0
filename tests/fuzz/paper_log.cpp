#include "lab/report/figures.h"
#include "lab/report/report_json.h"
#include "lab/report/text_report.h"
#include "tests/fuzz/fuzz_targets.h"
#include "tests/fuzz/scratch.h"

void gluon::fuzz::paper_log(std::string_view bytes) {
  static const Scratch scratch("paper_log");
  const std::filesystem::path path = scratch.write("log.txt", bytes);
  const lab::ReportData data = lab::collect_report({&path, 1});
  (void)lab::report_json(data);
  (void)lab::text_report(data);
  for (const lab::Figure& figure : lab::report_figures(data)) (void)lab::figure_svg(figure);
}
