// Folders a report writes into, and names of files in them.

#pragma once

#include <filesystem>
#include <string>

namespace gluon::lab {

/// Makes `folder`. Throws InputError, which names `flag`, when it is a file, holds anything already or cannot be made.
void make_output_folder(const std::string& flag, const std::filesystem::path& folder);

/// `text` with an underscore for every character that is not a letter, a digit, '.', '-' or '_'.
std::string file_name(const std::string& text);

}  // namespace gluon::lab
