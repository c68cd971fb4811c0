#include "lab/data/cifar10.h"

#include <ATen/ATen.h>

#include <cmath>
#include <map>
#include <set>

#include "tests/expect_error.h"
#include "tests/lab/data/packed.h"
#include "tests/lab/data/shared_data.h"
#include "tests/temporary_folder.h"

namespace gluon::lab {
namespace {

/// `count` images with label = number % 10 and distinct pixels.
std::string batch_bytes(int64_t count, int64_t first) {
  std::string bytes;
  for (int64_t n = first; n < first + count; ++n) {
    bytes.push_back(static_cast<char>(n % 10));
    for (int64_t i = 0; i < 3072; ++i) bytes.push_back(static_cast<char>((i * 37 + n * 101 + i * i % 251) % 256));
  }
  return bytes;
}

/// Five batches of 7 images, one of them packed, and 12 test images.
class TinyCifar : public ::testing::Test {
 protected:
  TinyCifar() {
    for (int64_t k = 0; k < 5; ++k) {
      const std::string name = "data_batch_" + std::to_string(k + 1) + ".bin";
      const std::string bytes = batch_bytes(7, 7 * k);
      folder.write(k == 2 ? name + ".xz" : name, k == 2 ? packed(bytes) : bytes);
    }
    folder.write("test_batch.bin.xz", packed(batch_bytes(12, 100)));
  }

  Cifar10 load(const CifarOptions& options = {}) const { return Cifar10(path, options); }

  TemporaryFolder folder;
  const std::filesystem::path& path = folder.path();
};

at::Tensor expected_image(int64_t image) {
  std::string bytes = batch_bytes(1, image).substr(1);
  const at::Tensor pixels = at::from_blob(bytes.data(), {3, 32, 32}, at::kByte).to(at::kDouble) / 255;
  const at::Tensor mean = at::tensor({0.4914, 0.4822, 0.4465}, at::kDouble).reshape({3, 1, 1});
  const at::Tensor deviation = at::tensor({0.2470, 0.2435, 0.2616}, at::kDouble).reshape({3, 1, 1});
  return ((pixels - mean) / deviation).to(at::kFloat);
}

TEST_F(TinyCifar, ReadsAndNormalises) {
  const Cifar10 data = load();
  EXPECT_EQ(data.train_examples(), 35);
  EXPECT_EQ(data.classes(), 10);
  EXPECT_EQ(data.tokens_per_example(), 1);
  const at::Tensor images = data.train_images();
  ASSERT_EQ(images.sizes(), (at::IntArrayRef{35, 3, 32, 32}));
  for (int64_t i = 0; i < 35; ++i) EXPECT_TRUE(images[i].allclose(expected_image(i), 1e-5, 1e-5)) << i;
  EXPECT_TRUE(data.train_images(9).equal(images.slice(0, 0, 9)));
  EXPECT_EQ(data.describe(), "CIFAR-10 from " + path.string() + ": 35 training images; 12 test images");

  const auto batches = data.validation(5);
  ASSERT_EQ(batches.size(), 3U);
  EXPECT_EQ(batches[2].inputs.sizes(), (at::IntArrayRef{2, 3, 32, 32}));
  EXPECT_TRUE(batches[1].inputs[0].allclose(expected_image(105), 1e-5, 1e-5));
  EXPECT_TRUE(batches[1].targets.equal(at::tensor({5, 6, 7, 8, 9}, at::kLong)));
}

TEST_F(TinyCifar, EachImageOncePerEpoch) {
  const Cifar10 data = load({.seed = 5});
  const at::Tensor images = data.train_images();
  std::vector<int64_t> drawn;
  for (int64_t batch = 0; batch < 35; ++batch) {  // 70 images in batches of 2 over an epoch of 35
    const Batch b = data.train_batch(batch, 2);
    for (int64_t i = 0; i < 2; ++i) {
      const at::Tensor equal = (images == b.inputs[i]).flatten(1).all(1);
      ASSERT_EQ(equal.sum().item<int64_t>(), 1);
      drawn.push_back(equal.nonzero().item<int64_t>());
      EXPECT_EQ(b.targets[i].item<int64_t>(), drawn.back() % 10);
    }
  }
  const std::vector<int64_t> first(drawn.begin(), drawn.begin() + 35), second(drawn.begin() + 35, drawn.end());
  EXPECT_EQ(std::set<int64_t>(first.begin(), first.end()).size(), 35U);
  EXPECT_EQ(std::set<int64_t>(second.begin(), second.end()).size(), 35U);
  EXPECT_NE(first, second);
}

TEST_F(TinyCifar, FullBatchIsInFileOrder) {
  const Cifar10 data = load({.seed = 5});
  for (const int64_t index : {0, 1, 50}) {
    const Batch batch = data.train_batch(index, 35);
    EXPECT_TRUE(batch.inputs.equal(data.train_images()));
    EXPECT_TRUE(batch.targets.equal(at::arange(35) % 10));
  }
}

TEST_F(TinyCifar, FlipsEveryOtherEpoch) {
  const Cifar10 data = load({.seed = 1, .flip = true});
  const at::Tensor plain = data.train_images();
  const at::Tensor even = data.train_batch(0, 35).inputs;
  const at::Tensor odd = data.train_batch(1, 35).inputs;
  EXPECT_TRUE(odd.equal(even.flip({3})));
  EXPECT_TRUE(data.train_batch(2, 35).inputs.equal(even));
  int64_t flipped = 0;
  for (int64_t i = 0; i < 35; ++i) {
    const bool same = even[i].equal(plain[i]);
    EXPECT_TRUE(same || even[i].equal(plain[i].flip({2})));
    flipped += !same;
  }
  EXPECT_GT(flipped, 5);
  EXPECT_LT(flipped, 30);
}

TEST_F(TinyCifar, TranslatesWithReflectionAtTheEdge) {
  const Cifar10 data = load({.seed = 1, .translate = 2});
  const at::Tensor wide = at::reflection_pad2d(data.train_images(), {2, 2, 2, 2});
  std::map<std::pair<int, int>, int> shifts;
  for (int64_t epoch = 0; epoch < 20; ++epoch) {
    const at::Tensor batch = data.train_batch(epoch, 35).inputs;
    for (int64_t i = 0; i < 35; ++i) {
      int found = 0;
      for (int y = 0; y < 5; ++y) {
        for (int x = 0; x < 5; ++x) {
          if (!batch[i].equal(wide[i].slice(1, y, y + 32).slice(2, x, x + 32))) continue;
          ++shifts[{y, x}];
          ++found;
        }
      }
      ASSERT_EQ(found, 1);
    }
  }
  EXPECT_EQ(shifts.size(), 25U);  // all shifts: 28 of each on average
  for (const auto& [shift, count] : shifts) EXPECT_GT(count, 7);
}

TEST_F(TinyCifar, BatchDependsOnSeedAndIndexOnly) {
  const CifarOptions options{.seed = 2, .flip = true, .translate = 2};
  const Cifar10 data = load(options);
  const Cifar10 again = load(options);
  const Batch batch = data.train_batch(9, 6);
  data.train_batch(1, 6);
  EXPECT_TRUE(batch.inputs.equal(data.train_batch(9, 6).inputs));
  EXPECT_TRUE(batch.inputs.equal(again.train_batch(9, 6).inputs));
  const Cifar10 other = load({.seed = 3, .flip = true, .translate = 2});
  EXPECT_FALSE(batch.inputs.equal(other.train_batch(9, 6).inputs));
}

TEST_F(TinyCifar, LimitsTheNumberOfImages) {
  // The files after the third are not read.
  std::filesystem::remove(path / "data_batch_4.bin");
  const Cifar10 data = load({.train_images = 16, .test_images = 10});
  EXPECT_EQ(data.train_examples(), 16);
  EXPECT_EQ(data.validation(100).front().targets.size(0), 10);
  EXPECT_NEAR(data.unigram_entropy(), std::log(10.0), 1e-12);
  EXPECT_TRUE(data.train_images()[15].allclose(expected_image(15), 1e-5, 1e-5));
}

TEST_F(TinyCifar, BadInput) {
  EXPECT_INPUT_ERROR(load({.train_images = 36}), "holds 35 training images, requested 36");
  EXPECT_INPUT_ERROR(load({.test_images = 13}), "holds 12 test images, requested 13");
  EXPECT_INPUT_ERROR(load({.train_images = -1}), "must be >= 1, or 0 for all, got -1 for training");
  EXPECT_INPUT_ERROR(load({.translate = 32}), "translate must be 0..31 pixels, got 32");
  EXPECT_INPUT_ERROR(Cifar10(path / "none", {}), "none' is not a folder");
  const Cifar10 data = load();
  EXPECT_INPUT_ERROR(data.train_batch(0, 0), "got index 0 and size 0");
  EXPECT_INPUT_ERROR(data.validation(0), "expected validation batches of size >= 1, got 0");
  EXPECT_INPUT_ERROR(data.train_images(36), "expected at most 35 training images, requested 36");

  folder.write("data_batch_2.bin", "");
  EXPECT_INPUT_ERROR(load(), "data_batch_2.bin' is empty");
  folder.write("data_batch_2.bin", batch_bytes(7, 0).substr(1));
  EXPECT_INPUT_ERROR(load(), "is truncated or has another format: 21510 bytes is not a multiple of 3073");
  std::string labels = batch_bytes(7, 0);
  labels[3073 * 4] = 10;
  folder.write("data_batch_2.bin", labels);
  EXPECT_INPUT_ERROR(load(), "data_batch_2.bin' has label 10 at image 4, expected 0..9");
  std::filesystem::remove(path / "data_batch_2.bin");
  EXPECT_INPUT_ERROR(load(), "data_batch_2.bin.xz' exists");
  const std::string cut = packed(batch_bytes(7, 0));
  folder.write("data_batch_2.bin.xz", cut.substr(0, cut.size() - 20));
  EXPECT_INPUT_ERROR(load(), "data_batch_2.bin.xz' is truncated");
}

TEST(Cifar10, ReadsRealImages) {
  GLUON_SHARED_DATA_OR_SKIP(folder, "cifar10");
  const Cifar10 data(folder, {.train_images = 10000});
  EXPECT_EQ(data.train_examples(), 10000);
  EXPECT_NEAR(data.unigram_entropy(), std::log(10.0), 1e-9);  // 1000 test images of each label
  const at::Tensor images = data.train_images();
  EXPECT_NEAR(images.mean().item<double>(), 0, 0.02);
  EXPECT_NEAR(images.std().item<double>(), 1, 0.02);
}

}  // namespace
}  // namespace gluon::lab
