#include "lab/report/page.h"

#include <stdexcept>
#include <utility>

#include "gluon/core/check.h"

namespace gluon::lab {
namespace {

// The page with the servers that its policy allows, and the data.
std::string filled(std::string_view servers, std::string_view json) {
  std::string page(page_template());
  for (const auto& [marker, text] : {std::pair<std::string_view, std::string_view>("@GLUON_REPORT_CONNECT@", servers),
                                     {"@GLUON_REPORT_DATA@", json}}) {
    const auto at = page.find(marker);
    if (at == std::string::npos) throw std::logic_error(join("page: the template has no ", marker));
    page.replace(at, marker.size(), text);
  }
  return page;
}

}  // namespace

std::string page_with(std::string_view json) { return filled("'none'", json); }

std::string live_page() { return filled("'self'", "null"); }

}  // namespace gluon::lab
