// Text from files, names and flags, made safe to show.
//
// A terminal obeys escape sequences: a layer called "\033[2J" would clear the screen, one with a line break would forge
// a line. Whatever prints text that it did not write itself prints printable(text).

#pragma once

#include <string>
#include <string_view>

namespace gluon {

/// The text with \n, \t, \r and \xNN for line breaks, other control characters, bytes that are not UTF-8, and the
/// characters that reorder text. Everything else stays as it is: printable(printable(x)) == printable(x).
std::string printable(std::string_view text);

}  // namespace gluon
