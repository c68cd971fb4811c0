#include "lab/data/cifar10.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <limits>

#include "gluon/core/check.h"
#include "lab/data/input_file.h"
#include "lab/data/permutation.h"

namespace gluon::lab {
namespace {

constexpr int64_t kSide = 32;
constexpr int64_t kPlane = kSide * kSide;
constexpr int64_t kImageBytes = 3 * kPlane;
constexpr int64_t kRecordBytes = 1 + kImageBytes;
constexpr std::array<float, 3> kMean{0.4914F, 0.4822F, 0.4465F};
constexpr std::array<float, 3> kDeviation{0.2470F, 0.2435F, 0.2616F};

// Streams of mixed_bits.
constexpr uint64_t kOrderStream = 1;
constexpr uint64_t kFlipStream = 2;
constexpr uint64_t kTranslateStream = 3;

/// The augmentation of one image.
struct Change {
  int64_t image = 0;
  bool flip = false;
  int64_t dx = 0;
  int64_t dy = 0;
};

/// The normalised value of every byte, per channel.
const std::array<std::array<float, 256>, 3>& normalised_bytes() {
  static const auto table = [] {
    std::array<std::array<float, 256>, 3> values;
    for (int channel = 0; channel < 3; ++channel) {
      for (int byte = 0; byte < 256; ++byte) {
        values[channel][byte] = (static_cast<float>(byte) / 255.0F - kMean[channel]) / kDeviation[channel];
      }
    }
    return values;
  }();
  return table;
}

/// ... 2 1 | 0 1 2 ... 31 | 30 29 ...: reflection that does not repeat the edge.
int64_t reflected(int64_t place) {
  if (place < 0) return -place;
  return place < kSide ? place : 2 * (kSide - 1) - place;
}

void write_image(const uint8_t* bytes, const Change& change, float* out) {
  std::array<int64_t, kSide> column;
  for (int64_t x = 0; x < kSide; ++x) {
    const int64_t from = reflected(x + change.dx);
    column[x] = change.flip ? kSide - 1 - from : from;
  }
  for (int channel = 0; channel < 3; ++channel) {
    const std::array<float, 256>& value = normalised_bytes()[channel];
    for (int64_t y = 0; y < kSide; ++y) {
      const uint8_t* const row = bytes + channel * kPlane + reflected(y + change.dy) * kSide;
      for (int64_t x = 0; x < kSide; ++x) *out++ = value[row[column[x]]];
    }
  }
}

/// (changes, 3, 32, 32) float32 from the (N, 3, 32, 32) bytes.
at::Tensor written(const at::Tensor& images, const std::vector<Change>& changes) {
  const at::Tensor out = at::empty({static_cast<int64_t>(changes.size()), 3, kSide, kSide}, at::kFloat);
  const uint8_t* const bytes = images.data_ptr<uint8_t>();
  float* const values = out.data_ptr<float>();
  at::parallel_for(0, static_cast<int64_t>(changes.size()), 64, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      write_image(bytes + changes[i].image * kImageBytes, changes[i], values + i * kImageBytes);
    }
  });
  return out;
}

std::vector<Change> unchanged(int64_t first, int64_t count) {
  std::vector<Change> changes(count);
  for (int64_t i = 0; i < count; ++i) changes[i].image = first + i;
  return changes;
}

std::filesystem::path plain_or_packed(const std::filesystem::path& folder, const std::string& name) {
  const std::filesystem::path plain = folder / name;
  const std::filesystem::path packed = folder / (name + ".xz");
  if (std::filesystem::exists(plain)) return plain;
  GLUON_CHECK(std::filesystem::exists(packed), "CIFAR-10: neither '", plain.string(), "' nor '", packed.string(),
              "' exists");
  return packed;
}

/// The first `limit` images of the batches (0 = all), and their labels.
Batch load(const std::filesystem::path& folder, const std::vector<std::string>& names, int64_t limit,
           const char* kind) {
  std::string records;
  const auto count = [&] { return static_cast<int64_t>(records.size()) / kRecordBytes; };
  for (const std::string& name : names) {
    if (limit > 0 && count() >= limit) break;
    const std::filesystem::path path = plain_or_packed(folder, name);
    const std::string bytes = read_file(path);
    GLUON_CHECK(!bytes.empty(), "CIFAR-10 batch '", path.string(), "' is empty");
    GLUON_CHECK(bytes.size() % kRecordBytes == 0, "CIFAR-10 batch '", path.string(),
                "' is truncated or has another format: ", bytes.size(), " bytes is not a multiple of ", kRecordBytes);
    for (std::size_t at = 0; at < bytes.size(); at += kRecordBytes) {
      const int label = static_cast<unsigned char>(bytes[at]);
      GLUON_CHECK(label <= 9, "CIFAR-10 batch '", path.string(), "' has label ", label, " at image ", at / kRecordBytes,
                  ", expected 0..9");
    }
    records += bytes;
  }
  GLUON_CHECK(limit <= count(), "CIFAR-10: '", folder.string(), "' holds ", count(), " ", kind, " images, requested ",
              limit);
  const at::Tensor rows = at::from_blob(records.data(), {limit > 0 ? limit : count(), kRecordBytes}, at::kByte);
  return {rows.slice(1, 1).reshape({-1, 3, kSide, kSide}).clone(at::MemoryFormat::Contiguous),
          rows.select(1, 0).to(at::kLong)};
}

}  // namespace

Cifar10::Cifar10(const std::filesystem::path& folder, const CifarOptions& options)
    : folder_(folder.string()), options_(options) {
  GLUON_CHECK(options.train_images >= 0 && options.test_images >= 0,
              "CIFAR-10: the number of images must be >= 1, or 0 for all, got ", options.train_images,
              " for training and ", options.test_images, " for testing");
  GLUON_CHECK(options.translate >= 0 && options.translate < kSide, "CIFAR-10: translate must be 0..31 pixels, got ",
              options.translate);
  GLUON_CHECK(std::filesystem::is_directory(folder), "CIFAR-10: '", folder_,
              "' is not a folder; expected one with data_batch_1.bin ... and test_batch.bin");
  train_ =
      load(folder, {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"},
           options.train_images, "training");
  test_ = load(folder, {"test_batch.bin"}, options.test_images, "test");
}

Batch Cifar10::train_batch(int64_t index, int64_t size) const {
  GLUON_CHECK(index >= 0 && size >= 1 && index < std::numeric_limits<int64_t>::max() / size - 1,
              "CIFAR-10: expected batch index >= 0 and size >= 1, got index ", index, " and size ", size);
  const int64_t count = train_examples();
  const int64_t range = 2 * options_.translate + 1;
  std::vector<Change> changes;
  changes.reserve(size);
  for (int64_t i = index * size; i < (index + 1) * size; ++i) {
    const auto epoch = static_cast<uint64_t>(i / count);
    const int64_t place = i % count;
    Change change{.image = place};
    if (size != count) change.image = permuted(place, count, mixed_bits(options_.seed, kOrderStream, epoch));
    const auto image = static_cast<uint64_t>(change.image);
    if (options_.flip) change.flip = ((mixed_bits(options_.seed, kFlipStream, image) ^ epoch) & 1) != 0;
    if (options_.translate > 0) {
      const uint64_t bits = mixed_bits(mixed_bits(options_.seed, kTranslateStream, epoch), 0, image);
      change.dx = static_cast<int64_t>((bits >> 32) % range) - options_.translate;
      change.dy = static_cast<int64_t>((bits & 0xffffffff) % range) - options_.translate;
    }
    changes.push_back(change);
  }
  const at::Tensor targets = at::empty({size}, at::kLong);
  for (int64_t i = 0; i < size; ++i) {
    targets.data_ptr<int64_t>()[i] = train_.targets.data_ptr<int64_t>()[changes[i].image];
  }
  return {written(train_.inputs, changes), targets};
}

std::vector<Batch> Cifar10::validation(int64_t size) const {
  GLUON_CHECK(size >= 1, "CIFAR-10: expected validation batches of size >= 1, got ", size);
  std::vector<Batch> batches;
  const int64_t count = test_.inputs.size(0);
  for (int64_t first = 0; first < count; first += size) {
    const int64_t here = std::min(size, count - first);
    batches.push_back(
        {written(test_.inputs, unchanged(first, here)), test_.targets.slice(0, first, first + here).clone()});
  }
  return batches;
}

std::string Cifar10::describe() const {
  std::string changes = options_.flip ? ", flipped every other epoch" : "";
  if (options_.translate > 0) changes += join(", translated by up to ", options_.translate, " pixels");
  return join("CIFAR-10 from ", folder_, ": ", train_examples(), " training images", changes, "; ",
              test_.inputs.size(0), " test images");
}

torch::Tensor Cifar10::train_images(int64_t count) const {
  GLUON_CHECK(count >= 0 && count <= train_examples(), "CIFAR-10: expected at most ", train_examples(),
              " training images, requested ", count);
  return written(train_.inputs, unchanged(0, count == 0 ? train_examples() : count));
}

}  // namespace gluon::lab
