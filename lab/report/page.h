// The page of the report: one HTML text that needs nothing else, made from web/ at build time.
//
// Without the charting library (web/node_modules) the build takes no_page.cpp instead.

#pragma once

#include <string>
#include <string_view>

namespace gluon::lab {

/// The page with the markers below. Throws InputError, which says what to install, in a program built without it.
std::string_view page_template();

inline constexpr std::string_view kDataMarker = "@GLUON_REPORT_DATA@";
inline constexpr std::string_view kConnectMarker = "@GLUON_REPORT_CONNECT@";  // whom its policy lets it ask

/// The page with `json` (report_json) in it, which asks nobody. Throws as page_template does.
std::string page_with(std::string_view json);

/// The page without data, which asks whoever serves it for "data.json" again and again. Throws as page_template does.
std::string live_page();

}  // namespace gluon::lab
