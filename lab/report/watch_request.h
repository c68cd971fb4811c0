// Reads what a browser sends to `gluon watch`: the head of one HTTP/1 request. Bodies have no meaning here and are
// never read.

#pragma once

#include <optional>
#include <string_view>

#include "lab/report/watch_answers.h"

namespace gluon::lab {

constexpr std::size_t kLongestRequest = 8192;  // bytes of a head

/// Why bytes are not a request: the status to answer, with a sentence.
struct BadRequest {
  int status = 400;
  const char* why = "";
};

/// The request at the start of `bytes`, or nothing while its end is missing. Throws BadRequest.
std::optional<WatchRequest> read_request(std::string_view bytes);

}  // namespace gluon::lab
