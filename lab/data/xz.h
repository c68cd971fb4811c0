// Unpacks .xz data with liblzma. Without that library the build uses no_xz.cpp, which throws.

#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace gluon::lab {

/// The contents of one or several xz streams. Throws InputError, which names `path`, on anything else.
std::string unpacked_xz(std::string_view packed, const std::filesystem::path& path);

}  // namespace gluon::lab
