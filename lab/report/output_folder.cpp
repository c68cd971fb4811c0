#include "lab/report/output_folder.h"

#include <cctype>

#include "gluon/core/check.h"

namespace gluon::lab {

namespace fs = std::filesystem;

void make_output_folder(const std::string& flag, const fs::path& folder) {
  GLUON_CHECK(!fs::exists(folder) || (fs::is_directory(folder) && fs::is_empty(folder)), "report: ", flag,
              " needs a new or empty folder, got ", folder.string());
  std::error_code error;
  fs::create_directories(folder, error);
  GLUON_CHECK(!error, "report: cannot create ", folder.string(), ": ", error.message());
}

std::string file_name(const std::string& text) {
  std::string name;
  for (const unsigned char c : text)
    name += std::isalnum(c) || c == '.' || c == '-' || c == '_' ? static_cast<char>(c) : '_';
  return name;
}

}  // namespace gluon::lab
