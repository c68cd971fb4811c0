// Included before everything else in the build of the fuzz targets. LibTorch 1.13 has vectors of types that are not
// complete yet; Clang 14 rejects that where the functions of std::vector are constexpr, as in C++20.

#pragma once

#include <string>

#pragma push_macro("_GLIBCXX20_CONSTEXPR")
#undef _GLIBCXX20_CONSTEXPR
#define _GLIBCXX20_CONSTEXPR inline
#define __fill_a1 __fill_a1_of_bits  // <string> has declared it as constexpr
#include <vector>
#undef __fill_a1
#pragma pop_macro("_GLIBCXX20_CONSTEXPR")
