// The file format, byte for byte. Hostile or damaged files give an error message, never a crash.

#include "gluon/checkpoint/safetensors.h"

#include <ATen/ATen.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <random>
#include <vector>

#include "gluon/core/atomic_file.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"

namespace gluon {
namespace {

namespace fs = std::filesystem;
using std::string_view_literals::operator""sv;

class Safetensors : public ::testing::Test {
 protected:
  std::string bytes() const { return read_text(path_, "test"); }
  void set_bytes(std::string_view bytes) const {
    // ext4 flushes a file that is truncated and rewritten at once, which is slow; it does not flush a new file.
    fs::remove(path_);
    std::ofstream(path_, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  // A file with this header and this many bytes of data.
  void set_header(std::string_view header, std::size_t data_bytes) const {
    const uint64_t length = header.size();
    std::string all(reinterpret_cast<const char*>(&length), sizeof(length));
    set_bytes(all.append(header).append(data_bytes, '\1'));
  }
  TensorFile round_trip(const TensorFile& file) const {
    write_safetensors(path_, file);
    return read_safetensors(path_);
  }
  std::ptrdiff_t files_in_folder() const {
    return std::distance(fs::directory_iterator(folder_), fs::directory_iterator());
  }

  TemporaryFolder temporary_;
  fs::path folder_ = temporary_.path();
  fs::path path_ = folder_ / "file.safetensors";
};

TensorFile small_file() {
  return {.tensors = {{"layer", at::tensor({1, 2, 3}, at::kInt)}, {"scalar", at::scalar_tensor(1, at::kDouble)}},
          .metadata = {{"format", "pt"}}};
}

TEST_F(Safetensors, SmallFileHasTheDocumentedBytes) {
  write_safetensors(path_, small_file());
  const std::string header = R"({"__metadata__":{"checksum":"crc32:7345f456","format":"pt"},)"
                             R"("scalar":{"dtype":"F64","shape":[],"data_offsets":[0,8]},)"
                             R"("layer":{"dtype":"I32","shape":[3],"data_offsets":[8,20]}})"
                             " ";
  EXPECT_EQ(header.size() % 8, 0u);
  std::string expected(1, static_cast<char>(header.size()));
  expected.append(7, '\0').append(header);
  expected.append("\0\0\0\0\0\0\xf0\x3f", 8);
  expected.append("\1\0\0\0\2\0\0\0\3\0\0\0", 12);
  EXPECT_EQ(bytes(), expected);
}

TEST_F(Safetensors, EveryDtypeRoundTripsBitForBit) {
  TensorFile file;
  for (const auto dtype : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kShort,
                           at::kChar, at::kByte, at::kBool}) {
    const std::string name = c10::toString(dtype);
    file.tensors[name] = at::randn({3, 5}).mul_(9).abs_().to(dtype);
    file.tensors[name + ".scalar"] = at::ones({}, dtype);
    file.tensors[name + ".empty"] = at::zeros({2, 0, 3}, dtype);
  }
  const TensorFile read = round_trip(file);
  EXPECT_TRUE(read.verified);
  ASSERT_EQ(read.tensors.size(), file.tensors.size());
  for (const auto& [name, tensor] : file.tensors) {
    const at::Tensor& other = read.tensors.at(name);
    EXPECT_EQ(other.scalar_type(), tensor.scalar_type()) << name;
    EXPECT_EQ(other.sizes(), tensor.sizes()) << name;
    EXPECT_TRUE(other.equal(tensor)) << name;
  }
}

TEST_F(Safetensors, NaNAndSignedZeroKeepTheirBits) {
  const at::Tensor bits = at::tensor({int64_t{0x7ff8000000001234}, INT64_MIN, int64_t{1}}, at::kLong);
  const TensorFile read = round_trip({.tensors = {{"x", bits.view(at::kDouble)}}});
  EXPECT_TRUE(read.tensors.at("x").view(at::kLong).equal(bits));
}

TEST_F(Safetensors, StridedExpandedAndNegatedTensorsKeepTheirValues) {
  const at::Tensor matrix = at::arange(12, at::kFloat).view({3, 4});
  const at::Tensor negated = at::imag(at::conj(at::complex(matrix, matrix)));
  at::Tensor leaf = matrix.clone().requires_grad_();
  for (const at::Tensor& tensor :
       {matrix.t(), matrix.select(1, 2), matrix.select(0, 1).expand({5, 4}), negated, leaf}) {
    const at::Tensor read = round_trip({.tensors = {{"x", tensor}}}).tensors.at("x");
    EXPECT_TRUE(read.equal(tensor)) << tensor;
    EXPECT_TRUE(read.is_contiguous());
  }
}

TEST_F(Safetensors, NamesAndMetadataMayHoldAnyText) {
  TensorFile file;
  for (const std::string_view text : {""sv, "a/b\\c"sv, "\"quoted\""sv, "tab\tline\nbell\a"sv, "größe 重み 🔥"sv,
                                      "checksum"sv, "\"crc32:00000000\""sv, "nul\0inside"sv, "{}[],:"sv}) {
    file.tensors[std::string(text)] = at::full({1}, static_cast<double>(file.tensors.size()));
    file.metadata["key " + std::string(text)] = text;
  }
  file.metadata["copy"] = "crc32:00000000";
  const TensorFile read = round_trip(file);
  EXPECT_TRUE(read.verified);
  EXPECT_EQ(read.metadata, file.metadata);
  ASSERT_EQ(read.tensors.size(), 9);
  for (const auto& [name, tensor] : file.tensors) EXPECT_TRUE(read.tensors.at(name).equal(tensor)) << name;
}

TEST_F(Safetensors, FileWithoutTensors) {
  const TensorFile read = round_trip({});
  EXPECT_TRUE(read.verified && read.tensors.empty() && read.metadata.empty());
}

TEST_F(Safetensors, FilesWithoutOurChecksumAreReadUnverified) {
  set_header(R"({ "b": {"shape": [2], "dtype": "U8", "data_offsets": [1, 3], "more": 1},
                  "a": {"dtype": "I8", "shape": [1, 1], "data_offsets": [0, 1]} }  )",
             3);
  const TensorFile read = read_safetensors(path_);
  EXPECT_FALSE(read.verified);
  EXPECT_TRUE(read.tensors.at("b").equal(at::ones({2}, at::kByte)));
  EXPECT_EQ(read.tensors.at("a").dim(), 2);
  set_header(R"({"__metadata__": {"checksum": "sha256:12", "format": "pt"}})", 0);
  const TensorFile other = read_safetensors(path_);
  EXPECT_FALSE(other.verified);
  EXPECT_EQ(other.metadata, (std::map<std::string, std::string>{{"format", "pt"}}));
}

TEST_F(Safetensors, TruncationAtEveryByteIsAnError) {
  write_safetensors(path_, small_file());
  const std::string whole = bytes();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    set_bytes(std::string_view(whole).substr(0, size));
    EXPECT_THROW(read_safetensors(path_), InputError) << size;
  }
  set_bytes(whole + '\0');
  EXPECT_INPUT_ERROR(read_safetensors(path_), "is too long: 21 bytes of data, the header lists 20");
}

TEST_F(Safetensors, EveryChangedByteOfTheDataIsDetected) {
  write_safetensors(path_, {.tensors = {{"x", at::randn({100})}}});
  const std::string whole = bytes();
  std::mt19937 random(1);
  for (std::size_t place = whole.size() - 400; place < whole.size(); ++place) {
    std::string damaged = whole;
    damaged[place] = static_cast<char>(damaged[place] ^ (1 + random() % 255));
    set_bytes(damaged);
    EXPECT_INPUT_ERROR(read_safetensors(path_), "its checksum is 'crc32:");
  }
}

TEST_F(Safetensors, DamagedHeadersAreNeverVerifiedAndNeverCrash) {
  TensorFile file = small_file();
  file.tensors["wide"] = at::zeros({2, 3, 4}, at::kHalf);
  file.tensors["flags"] = at::ones({5}, at::kBool);
  write_safetensors(path_, file);
  const std::string whole = bytes();
  const std::size_t header_end = 8 + static_cast<unsigned char>(whole[0]) + 256u * static_cast<unsigned char>(whole[1]);
  const std::string telling = "{}[]\",:0123456789-.eE\\u \n";
  std::mt19937 random(2);
  int errors = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string damaged = whole;
    const int changes = round % 2 == 0 ? 1 : 1 + static_cast<int>(random() % 4);
    for (int change = 0; change < changes; ++change) {
      char& byte = damaged[random() % header_end];
      byte = random() % 2 == 0 ? static_cast<char>(random()) : telling[random() % telling.size()];
    }
    set_bytes(damaged);
    try {
      const TensorFile read = read_safetensors(path_);
      EXPECT_TRUE(!read.verified || damaged == whole) << round;
    } catch (const InputError&) {
      ++errors;
    }
  }
  EXPECT_GT(errors, 1500);
}

TEST_F(Safetensors, HostileHeadersAreRejectedBeforeAllocation) {
  const auto refuses = [&](std::string_view header, std::size_t data, std::string_view text) {
    set_header(header, data);
    EXPECT_INPUT_ERROR(read_safetensors(path_), text);
  };
  refuses("", 8, "is not a safetensors file: a header of 0 bytes, expected 2 to 100000000");
  refuses("[]", 0, "its header must be a JSON object");
  refuses(" {}", 0, "its header must be a JSON object");
  refuses("{nonsense}", 0, "its header is not JSON");
  refuses("{\"a\xff\": 1}", 0, "its header is not JSON");
  refuses(R"({"a": 1e999})", 0, "its header is not JSON");
  refuses(R"({"a": {"b": [[1]]}})", 0, "its header is nested deeper than 3 levels");
  refuses(R"({"a": 1})", 0, "tensor 'a' needs a dtype, a shape and two data_offsets");
  refuses(R"({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}})", 4, "needs a dtype, a shape");
  refuses(R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0]}})", 4, "two data_offsets");
  refuses(R"({"a": {"dtype": "F4", "shape": [1], "data_offsets": [0, 4]}})", 4,
          "tensor 'a' has dtype 'F4', expected one of F64, F32");
  refuses(R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 8]}})", 8,
          "tensor 'a' of F32 [1] takes 4 bytes, its data_offsets are [0,8]");
  refuses(R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}})", 4, "its data_offsets are [4,0]");
  refuses(R"({"a": {"dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 0]}})", 0,
          "tensor 'a' has an impossible shape [4294967296,4294967296]");
  refuses(R"({"a": {"dtype": "F32", "shape": [0, 9223372036854775807], "data_offsets": [0, 0]}})", 0,
          "has an impossible shape");
  std::string ones = "1";
  for (int i = 0; i < 64; ++i) ones += ",1";
  refuses(R"({"a": {"dtype": "U8", "shape": [)" + ones + R"(], "data_offsets": [0, 1]}})", 1, "impossible shape");
  refuses(R"({"a": {"dtype": "F32", "shape": [1099511627776], "data_offsets": [0, 4398046511104]}})", 4,
          "is truncated: 4 bytes of data, the header lists 4398046511104");
  const std::string a = R"({"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}, )";
  refuses(a + R"("b": {"dtype": "U8", "shape": [4], "data_offsets": [2, 6]}})", 6,
          "tensor 'b' starts at 2 and overlaps the one before it, which ends at 4");
  refuses(a + R"("b": {"dtype": "U8", "shape": [4], "data_offsets": [5, 9]}})", 9,
          "has a gap before tensor 'b', from 4 to 5");
  refuses(a + R"("a": {"dtype": "U8", "shape": [4], "data_offsets": [4, 8]}})", 8, "lists 'a' twice");
  refuses(R"({"a": {"dtype": "U8", "dtype": "I8"}})", 0, "lists 'dtype' twice");
  refuses(R"({"__metadata__": []})", 0, "has a __metadata__ that is not an object");
  refuses(R"({"__metadata__": {"k": 1}})", 0, "metadata 'k' must be text, got 1");
  refuses(R"({"__metadata__": {"checksum": "crc32:00000000"}})", 0, "its checksum is 'crc32:00000000'");
  set_header(R"({"a": {"dtype": "BOOL", "shape": [1], "data_offsets": [0, 1]}})", 0);
  set_bytes(bytes() + '\2');
  EXPECT_INPUT_ERROR(read_safetensors(path_), "tensor 'a' holds a BOOL that is neither 0 nor 1");
  refuses(std::string(1000000, '['), 0, "nested deeper");

  set_bytes("1234567");
  EXPECT_INPUT_ERROR(read_safetensors(path_), "7 bytes, expected at least 8");
  set_bytes(std::string("\0\0\0\5\0\0\0\0{}", 10));
  EXPECT_INPUT_ERROR(read_safetensors(path_), "a header of 83886080 bytes in a file of 10");
  set_bytes("\xff\xff\xff\xff\xff\xff\xff\xff{}");
  EXPECT_INPUT_ERROR(read_safetensors(path_), "a header of 18446744073709551615 bytes, expected 2 to 100000000");
}

TEST_F(Safetensors, LargestShapesAreAccepted) {
  std::string ones = "1";
  for (int i = 1; i < 64; ++i) ones += ",1";
  set_header(R"({"a": {"dtype": "U8", "shape": [)" + ones + R"(], "data_offsets": [0, 1]}})", 1);
  EXPECT_EQ(read_safetensors(path_).tensors.at("a").dim(), 64);
  set_header(R"({"a": {"dtype": "U8", "shape": [0, 9223372036854775807], "data_offsets": [0, 0]}})", 0);
  EXPECT_EQ(read_safetensors(path_).tensors.at("a").size(1), std::numeric_limits<int64_t>::max());
}

TEST_F(Safetensors, MissingAndIrregularFilesAreRejected) {
  EXPECT_INPUT_ERROR(read_safetensors(path_),
                     "safetensors: '" + path_.string() + "' cannot be read: No such file or directory");
  EXPECT_INPUT_ERROR(read_safetensors(folder_), "cannot be read: it is not a regular file");
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_INPUT_ERROR(read_safetensors(path_), "cannot be read: it is not a regular file");
}

TEST_F(Safetensors, FailedWritesKeepTheOldFile) {
  write_safetensors(path_, small_file());
  const std::string before = bytes();
  const at::Tensor x = at::ones({2, 2});
  const auto refuses = [&](const TensorFile& file, const std::string& text) {
    EXPECT_INPUT_ERROR(write_safetensors(path_, file), "safetensors: cannot write '" + path_.string() + "': " + text);
    EXPECT_EQ(bytes(), before);
    EXPECT_EQ(files_in_folder(), 1);
  };
  refuses({.tensors = {{"__metadata__", x}}}, "a tensor cannot be called '__metadata__'");
  refuses({.tensors = {{"a", at::Tensor()}}}, "tensor 'a' must be dense with values");
  refuses({.tensors = {{"a", x.to_sparse()}}}, "tensor 'a' must be dense with values");
  refuses({.tensors = {{"a", at::empty({2}, at::device(at::kMeta))}}}, "tensor 'a' must be dense with values");
  refuses({.tensors = {{"a", x.to(at::kComplexFloat)}}},
          "tensor 'a' has dtype ComplexFloat, expected one of F64, F32, F16, BF16");
  refuses({.tensors = {{"a\xff", x}}}, "names and metadata must be UTF-8, got 'a\xff'");
  refuses({.metadata = {{"a", "\xc3"}}}, "names and metadata must be UTF-8");
  refuses({.metadata = {{"checksum", "1"}}}, "the metadata entry 'checksum' belongs to the format");
  refuses({.metadata = {{"a", std::string(100'000'000, 'x')}}},
          "names and metadata take 100000056 bytes, at most 100000000 are allowed");
  EXPECT_INPUT_ERROR(write_safetensors(folder_ / "none" / "file", small_file()), "No such file or directory");
  fs::create_directory(folder_ / "taken");
  EXPECT_INPUT_ERROR(write_safetensors(folder_ / "taken", small_file()), "Is a directory");
  EXPECT_EQ(files_in_folder(), 2);
  EXPECT_INPUT_ERROR(write_text_atomically(folder_ / "taken", "x"),
                     "write_text_atomically: cannot write '" + (folder_ / "taken").string() + "': Is a directory");
}

TEST_F(Safetensors, TakenTemporaryNamesAreNotOverwritten) {
  const fs::path taken = path_.string() + std::string(kTemporaryMark) + std::to_string(getpid()) + "-0";
  std::ofstream(taken) << "another writer";
  write_safetensors(path_, small_file());
  EXPECT_EQ(fs::file_size(taken), 14u);
  EXPECT_EQ(files_in_folder(), 2);
}

TEST_F(Safetensors, NoFileDescriptorLeaks) {
  const auto open_files = [] {
    return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
  };
  fs::create_directory(folder_ / "taken");
  const auto before = open_files();
  write_safetensors(path_, small_file());
  EXPECT_INPUT_ERROR(write_safetensors(folder_ / "taken", small_file()), "Is a directory");
  read_safetensors(path_);
  EXPECT_EQ(open_files(), before);
}

TEST_F(Safetensors, RelativePathsWork) {
  const fs::path before = fs::current_path();
  fs::current_path(folder_);
  write_safetensors("here.safetensors", small_file());
  EXPECT_EQ(read_safetensors("here.safetensors").tensors.size(), 2u);
  fs::current_path(before);
}

TEST_F(Safetensors, PythonLibraryReadsOurFile) {
  if (std::system("python3 -c 'import safetensors' 2>/dev/null") != 0)
    GTEST_SKIP() << "python3 has no safetensors package";
  write_safetensors(path_, small_file());
  std::ofstream(folder_ / "read.py") << R"(
import struct, sys
from safetensors import deserialize
tensors = dict(deserialize(open(sys.argv[1], "rb").read()))
assert set(tensors) == {"layer", "scalar"}, tensors
assert tensors["layer"]["dtype"] == "I32" and list(tensors["layer"]["shape"]) == [3], tensors
assert struct.unpack("<3i", bytes(tensors["layer"]["data"])) == (1, 2, 3)
assert struct.unpack("<d", bytes(tensors["scalar"]["data"])) == (1.0,)
)";
  const std::string command = "python3 '" + (folder_ / "read.py").string() + "' '" + path_.string() + "'";
  EXPECT_EQ(std::system(command.c_str()), 0);
}

}  // namespace
}  // namespace gluon
