// The page of the report: one HTML text that needs nothing else, made from web/ at build time.
//
// Without the charting library (web/node_modules) the build takes no_page.cpp instead.

#pragma once

#include <string>
#include <string_view>

namespace gluon::lab {

/// The page with the marker kDataMarker where the data goes. Throws InputError, which says what to install, in a
/// program built without it.
std::string_view page_template();

inline constexpr std::string_view kDataMarker = "@GLUON_REPORT_DATA@";

/// The page with `json` (report_json) in it. Throws as page_template does.
std::string page_with(std::string_view json);

}  // namespace gluon::lab
