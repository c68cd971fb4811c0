#include "gluon/checkpoint/safetensors.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iomanip>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "gluon/core/atomic_file.h"
#include "gluon/core/check.h"
#include "gluon/core/json.h"

namespace gluon {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "safetensors files hold little endian values");

using Dtype = std::pair<std::string_view, at::ScalarType>;
constexpr std::array kDtypes{Dtype{"F64", at::kDouble},    Dtype{"F32", at::kFloat}, Dtype{"F16", at::kHalf},
                             Dtype{"BF16", at::kBFloat16}, Dtype{"I64", at::kLong},  Dtype{"I32", at::kInt},
                             Dtype{"I16", at::kShort},     Dtype{"I8", at::kChar},   Dtype{"U8", at::kByte},
                             Dtype{"BOOL", at::kBool}};
constexpr std::string_view kDtypeNames = "F64, F32, F16, BF16, I64, I32, I16, I8, U8, BOOL";

// The limit of the Python library, which refuses longer headers.
constexpr uint64_t kMaxHeader = 100'000'000;
constexpr std::size_t kMaxDimensions = 64;

constexpr std::string_view kMetadata = "__metadata__";
constexpr std::string_view kChecksum = "checksum";
constexpr std::string_view kCrcMark = "crc32:";
constexpr std::string_view kZeroDigits = "00000000";
// The checksum comes first, so that its digits are at the same place in every file.
constexpr std::string_view kHeaderStart = R"({"__metadata__":{"checksum":"crc32:)";

uint32_t extend_crc(uint32_t crc, const void* bytes, std::size_t count) {
  // zlib takes a null pointer, which an empty tensor has, for a wish to start over.
  if (count == 0) return crc;
  return static_cast<uint32_t>(crc32_z(crc, static_cast<const Bytef*>(bytes), count));
}

std::string crc_digits(uint32_t crc) { return join(std::hex, std::setfill('0'), std::setw(8), crc); }

struct WrittenTensor {
  std::string_view name;
  std::string_view dtype;
  at::Tensor tensor;
  std::size_t bytes;
};

std::vector<WrittenTensor> written_order(const TensorFile& file, const std::string& origin) {
  std::vector<WrittenTensor> order;
  for (const auto& [name, tensor] : file.tensors) {
    GLUON_CHECK(name != kMetadata, origin, "a tensor cannot be called '", kMetadata, "'");
    GLUON_CHECK(tensor.defined() && tensor.layout() == at::kStrided && !tensor.is_meta(), origin, "tensor '", name,
                "' must be dense with values");
    const auto dtype = std::find_if(kDtypes.begin(), kDtypes.end(),
                                    [type = tensor.scalar_type()](const Dtype& known) { return known.second == type; });
    GLUON_CHECK(dtype != kDtypes.end(), origin, "tensor '", name, "' has dtype ", tensor.scalar_type(),
                ", expected one of ", kDtypeNames);
    order.push_back({name, dtype->first, tensor.detach(),
                     static_cast<std::size_t>(tensor.numel()) * c10::elementSize(dtype->second)});
  }
  // Others map the file into memory and need every tensor aligned to its entries.
  std::stable_sort(order.begin(), order.end(), [](const WrittenTensor& a, const WrittenTensor& b) {
    return a.tensor.element_size() > b.tensor.element_size();
  });
  return order;
}

std::string quoted(std::string_view text, const std::string& origin) {
  try {
    return json(text).dump();
  } catch (const json::exception&) {
    throw InputError(join(origin, "names and metadata must be UTF-8, got '", text, "'"));
  }
}

std::string make_header(const std::vector<WrittenTensor>& order, const TensorFile& file, const std::string& origin) {
  std::ostringstream out;
  out << kHeaderStart << kZeroDigits << '"';
  for (const auto& [key, value] : file.metadata) {
    GLUON_CHECK(key != kChecksum, origin, "the metadata entry '", kChecksum, "' belongs to the format");
    out << ',' << quoted(key, origin) << ':' << quoted(value, origin);
  }
  out << '}';
  std::size_t begin = 0;
  for (const WrittenTensor& entry : order) {
    out << ',' << quoted(entry.name, origin) << R"(:{"dtype":")" << entry.dtype << R"(","shape":)"
        << json(entry.tensor.sizes().vec()).dump() << R"(,"data_offsets":[)" << begin << ',' << begin + entry.bytes
        << "]}";
    begin += entry.bytes;
  }
  out << '}';
  std::string header = out.str();
  header.resize((header.size() + 7) / 8 * 8, ' ');
  GLUON_CHECK(header.size() <= kMaxHeader, origin, "names and metadata take ", header.size(), " bytes, at most ",
              kMaxHeader, " are allowed");
  return header;
}

std::ifstream open_file(const fs::path& path, const std::string& origin, uint64_t& size) {
  std::error_code error;
  const bool regular = fs::is_regular_file(path, error);
  GLUON_CHECK(regular, origin, "cannot be read: ", error ? error.message() : "it is not a regular file");
  std::ifstream in(path, std::ios::binary);
  size = fs::file_size(path, error);
  GLUON_CHECK(in && !error, origin, "cannot be read: ", std::strerror(errno));
  return in;
}

void read_bytes(std::istream& in, void* bytes, std::size_t count, const std::string& origin) {
  GLUON_CHECK(in.read(static_cast<char*>(bytes), static_cast<std::streamsize>(count)), origin,
              "cannot be read: ", std::strerror(errno));
}

struct ReadTensor {
  std::string name;
  at::ScalarType dtype;
  std::vector<int64_t> sizes;
  uint64_t begin;
  uint64_t end;
};

std::string read_header(std::istream& in, uint64_t size, const std::string& origin) {
  uint64_t length = 0;
  GLUON_CHECK(size >= sizeof(length), origin, "is not a safetensors file or is truncated: ", size,
              " bytes, expected at least 8");
  read_bytes(in, &length, sizeof(length), origin);
  GLUON_CHECK(length >= 2 && length <= kMaxHeader, origin, "is not a safetensors file: a header of ", length,
              " bytes, expected 2 to ", kMaxHeader);
  GLUON_CHECK(length <= size - sizeof(length), origin, "is not a safetensors file or is truncated: a header of ",
              length, " bytes in a file of ", size);
  std::string header(length, '\0');
  read_bytes(in, header.data(), header.size(), origin);
  return header;
}

json parse_header(const std::string& header, const std::string& origin) {
  constexpr std::size_t kDepth = 3;  // of data_offsets in a tensor in the header
  json parsed = parse_json(header, join(origin, "is not a safetensors file: its header"), kDepth);
  GLUON_CHECK(header.front() == '{' && parsed.is_object(), origin,
              "is not a safetensors file: its header must be a JSON object");
  return parsed;
}

bool are_counts(const json& list) {
  return list.is_array() &&
         std::all_of(list.begin(), list.end(), [](const json& value) { return value.is_number_unsigned(); });
}

ReadTensor parse_tensor(const std::string& name, const json& info, const std::string& origin) {
  const json dtype = info.is_object() ? info.value("dtype", json()) : json();
  const json shape = info.is_object() ? info.value("shape", json()) : json();
  const json offsets = info.is_object() ? info.value("data_offsets", json()) : json();
  GLUON_CHECK(dtype.is_string() && are_counts(shape) && are_counts(offsets) && offsets.size() == 2, origin, "tensor '",
              name, "' needs a dtype, a shape and two data_offsets");
  const auto& dtype_name = dtype.get_ref<const std::string&>();
  const auto known = std::find_if(kDtypes.begin(), kDtypes.end(),
                                  [&](const Dtype& candidate) { return candidate.first == dtype_name; });
  GLUON_CHECK(known != kDtypes.end(), origin, "tensor '", name, "' has dtype '", dtype_name, "', expected one of ",
              kDtypeNames);
  ReadTensor tensor{name, known->second, {}, offsets[0].get<uint64_t>(), offsets[1].get<uint64_t>()};
  // Strides are products of the sizes even where one of them is 0, so these must fit as well.
  uint64_t bytes = c10::elementSize(known->second);
  uint64_t span = bytes;
  bool fits = shape.size() <= kMaxDimensions;
  for (auto size = shape.begin(); fits && size != shape.end(); ++size) {
    const auto count = size->get<uint64_t>();
    fits = !__builtin_mul_overflow(span, std::max<uint64_t>(count, 1), &span) &&
           span <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    bytes = fits ? bytes * count : 0;
    tensor.sizes.push_back(static_cast<int64_t>(count));
  }
  GLUON_CHECK(fits, origin, "tensor '", name, "' has an impossible shape ", shape.dump());
  GLUON_CHECK(tensor.begin <= tensor.end && tensor.end - tensor.begin == bytes, origin, "tensor '", name, "' of ",
              dtype_name, " ", shape.dump(), " takes ", bytes, " bytes, its data_offsets are ", offsets.dump());
  return tensor;
}

std::vector<ReadTensor> parse_tensors(const json& header, uint64_t data_bytes, const std::string& origin) {
  std::vector<ReadTensor> tensors;
  for (const auto& [name, info] : header.items()) {
    if (name != kMetadata) tensors.push_back(parse_tensor(name, info, origin));
  }
  std::sort(tensors.begin(), tensors.end(), [](const ReadTensor& a, const ReadTensor& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  uint64_t expected = 0;
  for (const ReadTensor& tensor : tensors) {
    GLUON_CHECK(tensor.begin >= expected, origin, "tensor '", tensor.name, "' starts at ", tensor.begin,
                " and overlaps the one before it, which ends at ", expected);
    GLUON_CHECK(tensor.begin == expected, origin, "has a gap before tensor '", tensor.name, "', from ", expected,
                " to ", tensor.begin);
    expected = tensor.end;
  }
  GLUON_CHECK(expected == data_bytes, origin, expected > data_bytes ? "is truncated: " : "is too long: ", data_bytes,
              " bytes of data, the header lists ", expected);
  return tensors;
}

std::map<std::string, std::string> parse_metadata(const json& header, const std::string& origin) {
  std::map<std::string, std::string> metadata;
  const auto entries = header.find(kMetadata);
  if (entries == header.end()) return metadata;
  GLUON_CHECK(entries->is_object(), origin, "has a ", kMetadata, " that is not an object");
  for (const auto& [key, value] : entries->items()) {
    GLUON_CHECK(value.is_string(), origin, "metadata '", key, "' must be text, got ", value.dump());
    metadata.emplace(key, value.get_ref<const std::string&>());
  }
  return metadata;
}

at::Tensor read_tensor(std::istream& in, const ReadTensor& entry, uint32_t& crc, const std::string& origin) {
  at::Tensor tensor = at::empty(entry.sizes, entry.dtype);
  auto* bytes = static_cast<uint8_t*>(tensor.data_ptr());
  const std::size_t count = entry.end - entry.begin;
  read_bytes(in, bytes, count, origin);
  crc = extend_crc(crc, bytes, count);
  // A bool that is neither 0 nor 1 is undefined behaviour for whoever reads it.
  GLUON_CHECK(entry.dtype != at::kBool || std::all_of(bytes, bytes + count, [](uint8_t b) { return b <= 1; }), origin,
              "tensor '", entry.name, "' holds a BOOL that is neither 0 nor 1");
  return tensor;
}

}  // namespace

void write_safetensors(const fs::path& path, const TensorFile& file) {
  const at::NoGradGuard no_grad;
  const std::string origin = join("safetensors: cannot write '", path.string(), "': ");
  const std::vector<WrittenTensor> order = written_order(file, origin);
  const std::string header = make_header(order, file, origin);
  const uint64_t length = header.size();
  AtomicFile out(path, origin);
  uint32_t crc = 0;
  const auto append = [&](const void* bytes, std::size_t count) {
    out.append(bytes, count);
    crc = extend_crc(crc, bytes, count);
  };
  append(&length, sizeof(length));
  append(header.data(), header.size());
  for (const WrittenTensor& entry : order) {
    const at::Tensor values = entry.tensor.to(at::kCPU).resolve_neg().contiguous();
    append(values.data_ptr(), entry.bytes);
  }
  out.write_at(sizeof(length) + kHeaderStart.size(), crc_digits(crc).data(), kZeroDigits.size());
  out.commit();
}

TensorFile read_safetensors(const fs::path& path) {
  const std::string origin = join("safetensors: '", path.string(), "' ");
  uint64_t size = 0;
  std::ifstream in = open_file(path, origin, size);
  std::string header = read_header(in, size, origin);
  const uint64_t length = header.size();
  const json parsed = parse_header(header, origin);
  const std::vector<ReadTensor> tensors = parse_tensors(parsed, size - sizeof(length) - length, origin);
  TensorFile file;
  file.metadata = parse_metadata(parsed, origin);
  std::string stored;
  if (const auto entry = file.metadata.extract(std::string(kChecksum)); entry) stored = entry.mapped();
  // Another program's idea of a checksum is not ours to judge.
  file.verified = stored.starts_with(kCrcMark) && stored.size() == kCrcMark.size() + kZeroDigits.size();
  if (file.verified) {
    const std::size_t place = header.find('"' + stored + '"');
    if (place != std::string::npos) header.replace(place + 1 + kCrcMark.size(), kZeroDigits.size(), kZeroDigits);
  }
  uint32_t crc = extend_crc(0, &length, sizeof(length));
  crc = extend_crc(crc, header.data(), header.size());
  for (const ReadTensor& entry : tensors) file.tensors[entry.name] = read_tensor(in, entry, crc, origin);
  GLUON_CHECK(!file.verified || stored == join(kCrcMark, crc_digits(crc)), origin,
              "is damaged or was rewritten by another program: its checksum is '", stored, "', its content has '",
              kCrcMark, crc_digits(crc), "'");
  return file;
}

}  // namespace gluon
