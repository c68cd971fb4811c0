// HMAC-SHA-256 (RFC 2104, FIPS 180-4): a tag of a text that only those can compute who know the key.

#pragma once

#include <string>
#include <string_view>

namespace gluon {

constexpr std::size_t kTagBytes = 32;

std::string sha256(std::string_view text);
std::string hmac(std::string_view key, std::string_view text);

/// In a time that does not depend on where they differ.
bool same_secret(std::string_view a, std::string_view b);

/// Bytes of the system's random generator. Throws std::system_error.
std::string random_bytes(std::size_t count);

/// Two digits of 0-9a-f for each byte.
std::string to_hex(std::string_view bytes);

}  // namespace gluon
