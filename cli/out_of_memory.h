// Too little memory is no failure of ours: it is told as bad input is, with what was asked for.

#pragma once

#include <exception>
#include <string>

namespace gluon::cli {

/// One sentence when `error` says that memory is full, else nothing.
std::string out_of_memory(const std::exception& error);

}  // namespace gluon::cli
