#include "lab/report/watch_request.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

namespace gluon::lab {
namespace {

constexpr std::string_view kLineEnd = "\r\n", kHeadEnd = "\r\n\r\n";

// Takes everything up to `end`, and `end` itself, off the front of `text`.
std::string_view take_until(std::string_view& text, std::string_view end) {
  const std::size_t size = std::min(text.find(end), text.size());
  const std::string_view taken = text.substr(0, size);
  text.remove_prefix(std::min(size + end.size(), text.size()));
  return taken;
}

bool same_name(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

std::string_view trimmed(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

// A token has no characters that an address would have to encode.
std::string_view token_of(std::string_view query) {
  constexpr std::string_view kName = "token=";
  while (!query.empty()) {
    const std::string_view one = take_until(query, "&");
    if (one.starts_with(kName)) return one.substr(kName.size());
  }
  return {};
}

void read_first_line(std::string_view line, WatchRequest& request) {
  const std::string_view method = take_until(line, " "), target = take_until(line, " ");
  const auto letter = [](unsigned char c) { return std::isalpha(c) != 0; };
  if (method.empty() || !std::all_of(method.begin(), method.end(), letter) || target.empty())
    throw BadRequest{400, "the first line is not a method, a path and a version"};
  if (line != "HTTP/1.1" && line != "HTTP/1.0") throw BadRequest{505, "only HTTP/1.1 and HTTP/1.0 are spoken here"};
  std::string_view rest = target;
  request.method = method;
  request.path = take_until(rest, "?");
  request.token = token_of(rest);
}

void read_field(std::string_view line, WatchRequest& request) {
  constexpr std::string_view kBearer = "Bearer ";
  const std::size_t colon = line.find(':');
  if (colon == 0 || colon == std::string_view::npos || line[colon - 1] == ' ' || line.front() == ' ')
    throw BadRequest{400, "a line of the head is not a name, a colon and a value"};
  const std::string_view name = line.substr(0, colon), value = trimmed(line.substr(colon + 1));
  if (same_name(name, "Host")) {
    if (!request.host.empty()) throw BadRequest{400, "there are two Host lines"};
    request.host = value;
  } else if (same_name(name, "Authorization") && value.starts_with(kBearer)) {
    request.token = value.substr(kBearer.size());
  } else if (same_name(name, "If-None-Match")) {
    request.known = value;
  }
}

}  // namespace

std::optional<WatchRequest> read_request(std::string_view bytes) {
  const std::size_t size = bytes.substr(0, kLongestRequest).find(kHeadEnd);
  if (size == std::string_view::npos) {
    if (bytes.size() >= kLongestRequest) throw BadRequest{431, "the head of a request has at most 8192 bytes"};
    return std::nullopt;
  }
  std::string_view head = bytes.substr(0, size);
  const auto control = [](unsigned char c) { return (c < ' ' && c != '\t' && c != '\r' && c != '\n') || c == 127; };
  if (std::any_of(head.begin(), head.end(), control)) throw BadRequest{400, "the head has control characters"};
  WatchRequest request;
  read_first_line(take_until(head, kLineEnd), request);
  while (!head.empty()) read_field(take_until(head, kLineEnd), request);
  return request;
}

}  // namespace gluon::lab
