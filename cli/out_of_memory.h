// Reports exhausted memory as bad input, in one sentence, and not as an internal error.

#pragma once

#include <exception>
#include <string>

namespace gluon::cli {

/// One sentence if `error` means that memory is exhausted, otherwise nothing.
std::string out_of_memory(const std::exception& error);

}  // namespace gluon::cli
