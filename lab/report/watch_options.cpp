#include <algorithm>
#include <cctype>

#include "gluon/core/check.h"
#include "lab/report/watch_server.h"

namespace gluon::lab {

void WatchOptions::validate() const {
  constexpr std::size_t kTokenLength = 16;
  GLUON_CHECK(port >= 0 && port <= 65535, "watch: --port must be in 0..65535 (0 takes a free one), got ",
              port);
  GLUON_CHECK(is_loopback(host) || !token.empty(), "watch: --host ", host,
              " lets other machines in: give the --token they have to know");
  const auto plain = [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_' || c == '.'; };
  GLUON_CHECK(
      std::all_of(token.begin(), token.end(), plain),
      "watch: --token may hold letters, digits, '-', '_' and '.', so that it can stand in an address");
  GLUON_CHECK(token.empty() || token.size() >= kTokenLength, "watch: --token must have at least ",
              kTokenLength, " characters, got ", token.size());
}

}  // namespace gluon::lab
