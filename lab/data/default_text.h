// The default training text: the project's own sources and documents, embedded at build time.
//
// The files *.h, *.cpp and *.md in the order of their paths, each after a line with its path. embed_text.cmake
// generates the definition. The text changes with every commit: comparisons need a fixed text.

#pragma once

#include <string_view>

namespace gluon::lab {

/// The whole text; static storage.
std::string_view default_text();

}  // namespace gluon::lab
