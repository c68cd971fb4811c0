// Errors of the library.
//
// Bad input throws InputError with one sentence: where it was found, what was received, what is allowed.
//
//   GLUON_CHECK(radius > 0, "Geometry: radius of '", pattern, "' must be > 0, got ", radius);

#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace gluon {

/// What a caller, a file or a flag got wrong; the program exits with code 2 on it.
class InputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Streams all parts into one string.
template <typename... Parts> std::string join(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

}  // namespace gluon

/// Throws gluon::InputError made of the streamed parts unless `condition` holds.
#define GLUON_CHECK(condition, ...)                                          \
  do {                                                                       \
    if (!(condition)) throw ::gluon::InputError(::gluon::join(__VA_ARGS__)); \
  } while (false)
