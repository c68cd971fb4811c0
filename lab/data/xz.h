// Unpacking of .xz data, by liblzma; built without it (no_xz.cpp) it says so.

#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace gluon::lab {

/// The contents of one or several xz streams; `path` stands in errors. Throws InputError on anything else.
std::string unpacked_xz(std::string_view packed, const std::filesystem::path& path);

}  // namespace gluon::lab
