// The page of the report: one self-contained HTML file, bundled from web/ at build time.
//
// Without the charting library (web/node_modules) the build uses no_page.cpp instead.

#pragma once

#include <string>
#include <string_view>

namespace gluon::lab {

/// The page with markers for its policy and the data. In a program built without the page, throws InputError that says
/// what to install.
std::string_view page_template();

/// The page with `json` (report_json) embedded; it makes no requests. Throws as page_template does.
std::string page_with(std::string_view json);

/// The page without data, which fetches "data.json" from its server repeatedly. Throws as page_template does.
std::string live_page();

}  // namespace gluon::lab
