// What went wrong, in words for the user.

#pragma once

#include <exception>
#include <string>

namespace gluon::lab {

/// One sentence for the user if `error` is theirs to solve: bad input, files, exhausted memory. Otherwise nothing.
std::string user_error(const std::exception& error);

/// The same; for an error inside a library, its first line after "internal error: ".
std::string error_text(const std::exception& error);

}  // namespace gluon::lab
