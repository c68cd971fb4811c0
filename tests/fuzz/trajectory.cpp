#include "lab/report/figures.h"
#include "lab/report/heatmap.h"
#include "lab/report/report_json.h"
#include "lab/report/text_report.h"
#include "tests/fuzz/fuzz_targets.h"
#include "tests/fuzz/scratch.h"

// A run of which one file is the input; its first byte says which.
void gluon::fuzz::trajectory(std::string_view bytes) {
  static const Scratch scratch("trajectory");
  constexpr const char* kFiles[] = {"smoothness.csv", "log.csv", "facts.json", "sweep.csv", "status.json"};
  if (bytes.empty()) return;
  const char* file = kFiles[static_cast<unsigned char>(bytes[0]) % std::size(kFiles)];
  for (const char* name : kFiles) std::filesystem::remove(scratch.folder() / name);
  scratch.write("config.toml", "steps=2\n");
  scratch.write("log.csv", "step,tokens,loss,val,seconds\n1,8,5,,1\n2,16,4,4.1,2\n");
  scratch.write(file, bytes.substr(1));
  const std::filesystem::path path = scratch.folder();
  const lab::ReportData data = lab::collect_report({&path, 1});
  (void)lab::report_json(data);
  (void)lab::text_report(data);
  for (const lab::Figure& figure : lab::report_figures(data)) {
    (void)lab::figure_svg(figure);
    (void)lab::figure_csv(figure);
  }
  for (const lab::ReportSweep& sweep : data.sweeps) {
    (void)lab::heatmap_svg(sweep);
  }
}
