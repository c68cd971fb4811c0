// Output folders of a report, and file names in them.

#pragma once

#include <filesystem>
#include <string>

namespace gluon::lab {

/// Creates `folder`. Throws InputError, which names `flag`, when it is a file, is not empty or cannot be created.
void make_output_folder(const std::string& flag, const std::filesystem::path& folder);

/// Replaces every character of `text` that is not a letter, a digit, '.', '-' or '_' by '_'.
std::string file_name(const std::string& text);

}  // namespace gluon::lab
