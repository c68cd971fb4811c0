#include "gluon/core/json.h"

#include <set>
#include <string>
#include <vector>

#include "gluon/core/check.h"
#include "gluon/core/printable.h"

namespace gluon {

using nlohmann::json;

json parse_json(std::string_view text, std::string_view origin, std::size_t max_depth) {
  std::vector<std::set<std::string>> names(max_depth + 1);  // by depth, of the object being read
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    const auto level = static_cast<std::size_t>(depth);
    if (event == json::parse_event_t::object_start || event == json::parse_event_t::array_start) {
      GLUON_CHECK(level < max_depth, origin, " is nested deeper than ", max_depth, " levels");
      names[level + 1].clear();
    } else if (event == json::parse_event_t::key) {
      const auto& name = parsed.get_ref<const std::string&>();
      GLUON_CHECK(names[level].insert(name).second, origin, " lists '", printable(name), "' twice");
    }
    return true;
  };
  try {
    return json::parse(text, watch);
  } catch (const json::exception&) {
    throw InputError(join(origin, " is not JSON"));
  }
}

}  // namespace gluon
