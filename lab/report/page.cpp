#include "lab/report/page.h"

#include <stdexcept>

namespace gluon::lab {

std::string page_with(std::string_view json) {
  const std::string_view page = page_template();
  const auto at = page.find(kDataMarker);
  if (at == std::string_view::npos) throw std::logic_error("page: the template has no place for the data");
  std::string text;
  text.reserve(page.size() + json.size());
  text += page.substr(0, at);
  text += json;
  text += page.substr(at + kDataMarker.size());
  return text;
}

}  // namespace gluon::lab
