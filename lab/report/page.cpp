#include "lab/report/page.h"

#include <stdexcept>

namespace gluon::lab {

namespace {

std::string filled(std::string_view connect, std::string_view json) {
  const std::string_view page = page_template();
  const auto policy = page.find(kConnectMarker);
  const auto data = page.find(kDataMarker);
  if (data == std::string_view::npos || policy >= data) {
    throw std::logic_error("page: the template must contain the policy marker and then the data marker");
  }
  const auto between = policy + kConnectMarker.size();
  std::string text;
  text.reserve(page.size() + json.size());
  text.append(page.substr(0, policy)).append(connect).append(page.substr(between, data - between));
  text.append(json).append(page.substr(data + kDataMarker.size()));
  return text;
}

}  // namespace

std::string page_with(std::string_view json) { return filled("'none'", json); }

std::string live_page() { return filled("'self'", "null"); }

}  // namespace gluon::lab
