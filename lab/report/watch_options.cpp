#include <algorithm>
#include <cctype>

#include "gluon/core/check.h"
#include "lab/report/watch_server.h"

namespace gluon::lab {

void WatchOptions::validate() const {
  constexpr std::size_t kTokenLength = 16;
  GLUON_CHECK(port >= 0 && port <= 65535, "watch: --port must be in 0..65535 (0 takes a free one), got ", port);
  GLUON_CHECK(is_loopback(host) || !token.empty(), "watch: --host ", host,
              " is open to other machines and needs a --token");
  const auto plain = [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_' || c == '.'; };
  GLUON_CHECK(std::all_of(token.begin(), token.end(), plain),
              "watch: --token must consist of letters, digits, '-', '_' and '.', because it is part of an address");
  GLUON_CHECK(token.empty() || token.size() >= kTokenLength, "watch: --token must have at least ", kTokenLength,
              " characters, got ", token.size());
}

}  // namespace gluon::lab
