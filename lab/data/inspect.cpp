#include "lab/data/inspect.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string_view>

#include "gluon/core/check.h"
#include "lab/data/cifar10.h"
#include "lab/data/input_file.h"
#include "lab/data/token_shard.h"

namespace gluon::lab {
namespace {

using Json = nlohmann::ordered_json;

std::optional<std::string> inspect_cifar(std::string_view bytes) {
  if (bytes.empty() || bytes.size() % Cifar10::kRecordBytes != 0) return std::nullopt;
  std::array<int64_t, 10> labels{};
  for (std::size_t i = 0; i < bytes.size(); i += Cifar10::kRecordBytes) {
    const auto label = static_cast<unsigned char>(bytes[i]);
    if (label > 9) return std::nullopt;
    ++labels[label];
  }
  std::string text =
      join("CIFAR-10 batch: ", bytes.size() / Cifar10::kRecordBytes, " images; of labels 0..9:");
  for (const int64_t count : labels) text += join(" ", count);
  return text;
}

/// One line of the list, or an InputError where the entry is no tensor of this file.
std::string tensor_line(const std::string& name, const Json& entry, uint64_t data_bytes,
                        const std::string& file) {
  std::string shape;
  bool good = entry.is_object() && entry.contains("dtype") && entry["dtype"].is_string() &&
              entry.contains("shape") && entry["shape"].is_array() && entry.contains("data_offsets") &&
              entry["data_offsets"].is_array() && entry["data_offsets"].size() == 2;
  for (const char* key : {"shape", "data_offsets"}) {
    for (std::size_t i = 0; good && i < entry[key].size(); ++i) good = entry[key][i].is_number_unsigned();
  }
  GLUON_CHECK(good, "safetensors '", file, "' is corrupt: tensor '", name, "' is ", entry.dump(),
              ", expected dtype, shape and data_offsets");
  const auto begin = entry["data_offsets"][0].get<uint64_t>();
  const auto end = entry["data_offsets"][1].get<uint64_t>();
  GLUON_CHECK(begin <= end && end <= data_bytes, "safetensors '", file, "' is truncated or corrupt: tensor '",
              name, "' takes bytes ", begin, "..", end, " of ", data_bytes);
  for (const Json& size : entry["shape"]) shape += (shape.empty() ? "" : ", ") + size.dump();
  return join("\n  ", name, " ", entry["dtype"].get<std::string>(), " [", shape, "]");
}

std::optional<std::string> inspect_safetensors(std::string_view bytes, const std::filesystem::path& path) {
  constexpr std::size_t kLengthBytes = 8;
  const bool named = path.extension() == ".safetensors";
  uint64_t length = 0;
  if (bytes.size() >= kLengthBytes) std::memcpy(&length, bytes.data(), kLengthBytes);
  const bool fits = bytes.size() > kLengthBytes && length <= bytes.size() - kLengthBytes;
  if (!named && !(fits && bytes[kLengthBytes] == '{')) return std::nullopt;
  GLUON_CHECK(fits, "safetensors '", path.string(), "' is truncated: ", bytes.size(),
              " bytes, its header alone takes ", length);
  const Json header = Json::parse(bytes.substr(kLengthBytes, length), nullptr, false);
  if (!named && !header.is_object()) return std::nullopt;
  GLUON_CHECK(header.is_object(), "safetensors '", path.string(),
              "' is corrupt: its header is no JSON object");

  std::string lines;
  std::size_t count = 0;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    lines += tensor_line(name, entry, bytes.size() - kLengthBytes - length, path.string());
    ++count;
  }
  return join("safetensors: ", count, count == 1 ? " tensor" : " tensors", ", ", bytes.size(), " bytes",
              lines);
}

/// Whether all of `text` is UTF-8, in its shortest form, without surrogates.
bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    if (lead >= 0x80 && (lead < 0xc2 || lead > 0xf4)) return false;
    const std::size_t length = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if (i + length > text.size()) return false;
    uint32_t code = length == 1 ? lead : lead & (0x7f >> length);
    for (std::size_t j = 1; j < length; ++j) {
      const auto next = static_cast<unsigned char>(text[i + j]);
      if ((next & 0xc0) != 0x80) return false;
      code = code << 6 | (next & 0x3f);
    }
    const bool bad = (length == 3 && (code < 0x800 || (code >= 0xd800 && code < 0xe000))) ||
                     (length == 4 && (code < 0x10000 || code > 0x10ffff));
    if (bad) return false;
    i += length;
  }
  return true;
}

/// Text is UTF-8, or any 8-bit alphabet without control characters other than blanks and escapes.
std::optional<std::string> inspect_text(std::string_view bytes) {
  const bool utf8 = is_utf8(bytes);
  const bool controls = std::any_of(bytes.begin(), bytes.end(), [](char letter) {
    const auto byte = static_cast<unsigned char>(letter);
    return byte < 0x20 && !(byte >= '\t' && byte <= '\r') && byte != 0x1b;
  });
  if (controls) return std::nullopt;
  const auto lines = std::count(bytes.begin(), bytes.end(), '\n');
  return join("text: ", bytes.size(), " bytes, ", lines, lines == 1 ? " line, " : " lines, ",
              utf8 ? "UTF-8" : "not UTF-8");
}

std::string inspect_unknown(std::string_view bytes) {
  std::ostringstream text;
  text << "unknown: " << bytes.size() << " bytes that begin with" << std::hex << std::setfill('0');
  for (const char byte : bytes.substr(0, 16)) {
    text << ' ' << std::setw(2) << static_cast<int>(static_cast<unsigned char>(byte));
  }
  return text.str();
}

std::string inspect_shard(const std::filesystem::path& path) {
  const TokenShard shard(path);
  const uint16_t largest = *std::max_element(shard.tokens().begin(), shard.tokens().end());
  return join("token shard: ", shard.tokens().size(), " tokens, the largest is ", largest);
}

std::string inspect_bytes(std::string_view bytes, const std::filesystem::path& path) {
  if (bytes.empty()) return "empty file";
  if (auto found = inspect_safetensors(bytes, path)) return *found;
  if (auto found = inspect_text(bytes)) return *found;
  if (auto found = inspect_cifar(bytes)) return *found;
  return inspect_unknown(bytes);
}

}  // namespace

std::string inspect_file(const std::filesystem::path& path) {
  const MappedFile file(path);
  if (is_xz(path)) {
    const std::string unpacked = read_file(path);
    if (TokenShard::recognizes(unpacked)) {
      return join("token shard in xz: ", unpacked.size(), " bytes; unpack it to train on it");
    }
    return join(inspect_bytes(unpacked, path.stem()), "\nunpacked from ", file.bytes().size(),
                " bytes of xz");
  }
  if (TokenShard::recognizes(file.bytes())) return inspect_shard(path);
  return inspect_bytes(file.bytes(), path);
}

}  // namespace gluon::lab
