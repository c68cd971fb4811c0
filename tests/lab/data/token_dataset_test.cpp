#include "lab/data/token_dataset.h"

#include <ATen/ATen.h>

#include <cmath>
#include <numeric>
#include <set>

#include "tests/expect_error.h"
#include "tests/lab/data/packed.h"
#include "tests/lab/data/shared_data.h"
#include "tests/temporary_folder.h"

namespace gluon::lab {
namespace {

std::vector<uint16_t> counting(int64_t count, int first = 0) {
  std::vector<uint16_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

std::string counting_text(int64_t count) {
  std::string text(count, '\0');
  std::iota(text.begin(), text.end(), '\0');
  return text;
}

TokenOptions small(int64_t context) { return {.context = context, .seed = 3}; }

TokenDataset memory(const std::string& text, const TokenOptions& options) {
  return TokenDataset::from_text(text, "memory", options);
}

TEST(TokenDataset, EachWindowOncePerEpoch) {
  // 203 tokens at context 2: 101 windows, 10 of them for validation. Each token is its position, so the first token
  // identifies a window. Batches of 4 do not divide the epoch of 91.
  const TokenDataset data = memory(counting_text(203), small(2));
  EXPECT_EQ(data.train_examples(), 91);
  EXPECT_EQ(data.validation(1).size(), 10U);
  std::vector<int64_t> drawn;
  for (int64_t batch = 0; batch < 91; ++batch) {
    const Batch b = data.train_batch(batch, 4);
    ASSERT_EQ(b.inputs.sizes(), (at::IntArrayRef{4, 2}));
    ASSERT_EQ(b.inputs.scalar_type(), at::kLong);
    EXPECT_TRUE(b.targets.equal(b.inputs + 1));
    for (int64_t i = 0; i < 4; ++i) drawn.push_back(b.inputs[i][0].item<int64_t>());
  }
  std::vector<std::vector<int64_t>> epochs;
  for (int64_t epoch = 0; epoch < 4; ++epoch) {
    epochs.emplace_back(drawn.begin() + epoch * 91, drawn.begin() + (epoch + 1) * 91);
    const std::set<int64_t> distinct(epochs.back().begin(), epochs.back().end());
    EXPECT_EQ(distinct.size(), 91U);
    for (const int64_t first : distinct) EXPECT_TRUE(first % 2 == 0 && first < 182);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
}

TEST(TokenDataset, BatchDependsOnSeedAndIndexOnly) {
  const TokenDataset data = memory(counting_text(200), small(4));
  const TokenDataset again = memory(counting_text(200), small(4));
  const TokenDataset other = memory(counting_text(200), {.context = 4, .seed = 4});
  const Batch seventh = data.train_batch(7, 5);
  data.train_batch(100, 5);
  EXPECT_TRUE(seventh.inputs.equal(data.train_batch(7, 5).inputs));
  EXPECT_TRUE(seventh.inputs.equal(again.train_batch(7, 5).inputs));
  EXPECT_FALSE(seventh.inputs.equal(other.train_batch(7, 5).inputs));
  // A batch of twice the size is two consecutive batches.
  const at::Tensor pair = at::cat({data.train_batch(6, 5).inputs, seventh.inputs});
  EXPECT_TRUE(pair.equal(data.train_batch(3, 10).inputs));
}

TEST(TokenDataset, TrainingAndValidationShareNoTarget) {
  const TokenDataset data = memory(counting_text(250), small(3));
  std::set<int64_t> seen;
  const Batch all = data.train_batch(0, data.train_examples());
  const auto insert = [&](const Batch& batch) {
    const at::Tensor flat = batch.targets.flatten();
    for (int64_t i = 0; i < flat.numel(); ++i) EXPECT_TRUE(seen.insert(flat[i].item<int64_t>()).second);
  };
  insert(all);
  const auto batches = data.validation(3);
  ASSERT_EQ(batches.size(), 3U);  // 8 windows of 83
  EXPECT_EQ(batches[2].inputs.size(0), 2);
  for (const Batch& batch : batches) insert(batch);
  EXPECT_EQ(seen.size(), 249U);
}

TEST(TokenDataset, ValidationIsATenthAtLeastOneAtMost64) {
  for (const auto& [windows, validation] : {std::pair(1000, 64U), {639, 63U}, {100, 10U}, {19, 1U}, {2, 1U}}) {
    EXPECT_EQ(memory(std::string(windows + 1, 'a'), {.context = 1}).validation(1).size(), validation) << windows;
  }
}

TEST(TokenDataset, ValidationTokensAreTakenFromTheEnd) {
  // 101 windows of 2; 9 tokens need 5 of them.
  const TokenDataset data = memory(counting_text(203), {.context = 2, .validation_tokens = 9});
  EXPECT_EQ(data.train_examples(), 96);
  const auto batches = data.validation(8);
  ASSERT_EQ(batches.size(), 1U);
  EXPECT_TRUE(batches[0].inputs.flatten().equal(at::arange(192, 202)));
  EXPECT_EQ(memory(counting_text(203), {.context = 2, .validation_tokens = 200}).train_examples(), 1);
  EXPECT_INPUT_ERROR(memory(counting_text(203), {.context = 2, .validation_tokens = 201}),
                     "'memory' has 200 bytes for validation in windows of 2, --val-tokens asks for 201");
}

TEST(TokenDataset, ValidationFilesLeaveAllOfTheTrainingDataToTraining) {
  const TemporaryFolder folder;
  const std::string other = folder.write("other.txt", counting_text(53)).string();
  const TokenDataset data = memory(counting_text(203), {.context = 2, .validation = other});
  EXPECT_EQ(data.train_examples(), 101);
  const auto batches = data.validation(20);
  ASSERT_EQ(batches.size(), 2U);
  EXPECT_TRUE(at::cat({batches[0].inputs, batches[1].inputs}).flatten().equal(at::arange(0, 52)));
  EXPECT_TRUE(at::cat({batches[0].targets, batches[1].targets}).flatten().equal(at::arange(1, 53)));
  EXPECT_EQ(data.describe(), "memory: 203 bytes, vocabulary 256, 101 training windows of 2; validation on " + other +
                                 ": 53 bytes, 26 windows");
  const TokenDataset few = memory(counting_text(203), {.context = 2, .validation = other, .validation_tokens = 5});
  EXPECT_TRUE(few.validation(20)[0].inputs.flatten().equal(at::arange(0, 6)));
  EXPECT_EQ(memory("012", {.context = 2, .validation = other}).train_examples(), 1);
  EXPECT_INPUT_ERROR(memory(counting_text(203), {.context = 53, .validation = other}),
                     "other.txt' is too short: 53 bytes, a window of context 53 needs at least 54");
  EXPECT_INPUT_ERROR(memory(counting_text(203), {.context = 2, .validation = other, .validation_tokens = 53}),
                     "other.txt' has 52 bytes for validation in windows of 2, --val-tokens asks for 53");
  EXPECT_INPUT_ERROR(memory(counting_text(203), {.context = 2, .validation = "no/such.txt"}), "no/such.txt");
}

TEST(TokenDataset, TheVocabularyOfShardsIsThatOfTrainingAndValidation) {
  const TemporaryFolder folder;
  write_token_shard(folder.path() / "a.bin", counting(100));
  write_token_shard(folder.path() / "b.bin", counting(100, 200));
  const auto load = [&](int64_t vocabulary) {
    return TokenDataset::from_files(
        (folder.path() / "a.bin").string(),
        {.context = 8, .vocabulary = vocabulary, .validation = (folder.path() / "b.bin").string()});
  };
  EXPECT_EQ(load(0).classes(), 300);
  EXPECT_INPUT_ERROR(load(250), "b.bin' has token 250 at position 50, the vocabulary allows 0..249");
}

TEST(TokenDataset, WindowsSpanShards) {
  const TemporaryFolder folder;
  write_token_shard(folder.path() / "b.bin", counting(7, 5));
  write_token_shard(folder.path() / "a.bin", counting(5));
  write_token_shard(folder.path() / "c.bin", counting(301, 12));
  const TokenDataset data = TokenDataset::from_files((folder.path() / "*.bin").string(), small(6));
  EXPECT_EQ(data.tokens(), 313);
  EXPECT_EQ(data.classes(), 313);
  const Batch batch = data.train_batch(0, data.train_examples());
  std::set<int64_t> firsts;
  for (int64_t i = 0; i < data.train_examples(); ++i) {
    const int64_t first = batch.inputs[i][0].item<int64_t>();
    firsts.insert(first);
    EXPECT_TRUE(batch.inputs[i].equal(at::arange(first, first + 6)));
    EXPECT_TRUE(batch.targets[i].equal(at::arange(first + 1, first + 7)));
  }
  EXPECT_TRUE(firsts.contains(0) && firsts.contains(6));
  EXPECT_EQ(data.describe(), (folder.path() / "*.bin").string() +
                                 " (3 files): 313 tokens, vocabulary 313, 47 training and 5 validation windows of 6");
}

TEST(TokenDataset, ReadsTextAsBytes) {
  const TemporaryFolder folder;
  std::string text = counting_text(256) + "the end";
  const auto plain = folder.write("a.txt", text);
  const auto compressed = folder.write("b.txt.xz", packed(text));
  const TokenDataset data = TokenDataset::from_files(plain.string(), small(8));
  EXPECT_EQ(data.classes(), 256);
  EXPECT_EQ(data.tokens_per_example(), 8);
  EXPECT_EQ(data.train_batch(0, data.train_examples()).inputs.max().item<int64_t>(), 231);
  const TokenDataset twin = TokenDataset::from_files(compressed.string(), small(8));
  EXPECT_TRUE(data.train_batch(1, 8).targets.equal(twin.train_batch(1, 8).targets));
  const TokenDataset both = TokenDataset::from_files((folder.path() / "*.txt*").string(), small(8));
  EXPECT_EQ(both.tokens(), 2 * 263);
}

TEST(TokenDataset, UnigramEntropyOfValidationTargets) {
  // Validation: the last 4 of 40 windows of 4; their targets are half a, a quarter b, a quarter c.
  std::string text(145, 'x');
  for (int i = 0; i < 4; ++i) text += "aabc";
  const TokenDataset data = memory(text, {.context = 4});
  EXPECT_EQ(data.validation(1).size(), 4U);
  EXPECT_NEAR(data.unigram_entropy(), 1.5 * std::log(2.0), 1e-12);
  const TokenDataset flat = memory(std::string(100, 'a'), {.context = 4});
  EXPECT_NEAR(flat.unigram_entropy(), 0, 1e-12);
}

TEST(TokenDataset, TokenOutsideTheVocabularyIsAnError) {
  const TemporaryFolder folder;
  write_token_shard(folder.path() / "a.bin", counting(2000));
  std::vector<uint16_t> tokens = counting(2000);
  tokens[1500] = 60000;
  write_token_shard(folder.path() / "b.bin", tokens);
  const std::string pattern = folder.path().string();
  EXPECT_INPUT_ERROR(TokenDataset::from_files(pattern, {.context = 8, .vocabulary = 50304}),
                     "b.bin' has token 60000 at position 1500, the vocabulary allows 0..50303");
  EXPECT_EQ(TokenDataset::from_files(pattern, {.context = 8, .vocabulary = 60001}).classes(), 60001);
  EXPECT_INPUT_ERROR(TokenDataset::from_text("plain text, \xc3\xa9", "a.txt", {.context = 2, .vocabulary = 128}),
                     "'a.txt' has token 195 at position 12, the vocabulary allows 0..127");
}

TEST(TokenDataset, RejectsShortAndMixedData) {
  const TemporaryFolder folder;
  EXPECT_INPUT_ERROR(TokenDataset::from_text("", "a.txt", small(8)), "text 'a.txt' is empty");
  EXPECT_INPUT_ERROR(TokenDataset::from_text("0123456789012345", "a.txt", small(8)),
                     "'a.txt' is too short: 16 bytes, two windows of context 8 need at least 17");
  EXPECT_EQ(TokenDataset::from_text("01234567890123456", "a.txt", small(8)).train_examples(), 1);
  EXPECT_INPUT_ERROR(TokenDataset::from_files("no/such/*.bin", small(8)), "no file matches 'no/such/*.bin'");

  folder.write("z.txt", "some text that is long enough");
  write_token_shard(folder.path() / "a.bin", counting(100));
  EXPECT_INPUT_ERROR(TokenDataset::from_files(folder.path().string(), small(2)), "mixes token shards and text: '");
  TokenOptions other_kind = small(2);
  other_kind.validation = (folder.path() / "a.bin").string();
  EXPECT_INPUT_ERROR(TokenDataset::from_files((folder.path() / "z.txt").string(), other_kind),
                     join("z.txt' holds bytes and '", other_kind.validation, "' tokens; expected one kind"));
  const auto compressed = folder.write("b.bin.xz", packed("any"));
  EXPECT_INPUT_ERROR(TokenDataset::from_files(compressed.string(), small(2)),
                     "b.bin.xz' is compressed; token shards must be unpacked first");
  const auto foreign = folder.write("c.bin", std::string(3073, 'x'));
  EXPECT_INPUT_ERROR(TokenDataset::from_files(foreign.string(), small(2)), "c.bin' is not a token shard");
  // Without the extension, the magic number identifies a shard.
  std::filesystem::rename(folder.path() / "a.bin", folder.path() / "tokens.dat");
  EXPECT_EQ(TokenDataset::from_files((folder.path() / "tokens.dat").string(), small(2)).tokens(), 100);
}

TEST(TokenDataset, AShardCutOrReplacedMeanwhile) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a.bin";
  write_token_shard(path, counting(9000));
  const TokenDataset data = TokenDataset::from_files(path.string(), small(8));
  const Batch before = data.train_batch(0, 64);
  write_token_shard(path, counting(20));  // a new file of this name
  EXPECT_TRUE(data.train_batch(0, 64).inputs.equal(before.inputs));

  write_token_shard(path, counting(9000));
  const TokenDataset cut = TokenDataset::from_files(path.string(), small(8));
  std::filesystem::resize_file(path, 1100);
  EXPECT_INPUT_ERROR(cut.train_batch(0, 64), "a.bin' was cut from 19024 to 1100 bytes while it was read");
}

TEST(TokenDataset, RejectsBadOptions) {
  const std::string text(1000, 'a');
  EXPECT_INPUT_ERROR(memory(text, {.context = 0}), "context must be >= 1, got 0");
  EXPECT_INPUT_ERROR(memory(text, {.vocabulary = -1}),
                     "vocabulary must be >= 1, or 0 to derive it from the data, got -1");
  EXPECT_INPUT_ERROR(memory(text, {.validation_tokens = -1}), "validation_tokens must be >= 0, got -1");
  const TokenDataset data = memory(text, small(8));
  EXPECT_INPUT_ERROR(data.train_batch(-1, 4), "expected batch index >= 0 and size >= 1, got index -1 and size 4");
  EXPECT_INPUT_ERROR(data.train_batch(0, 0), "got index 0 and size 0");
  EXPECT_INPUT_ERROR(data.validation(0), "expected validation batches of size >= 1, got 0");
}

TEST(TokenDataset, TokenizesText) {
  GLUON_SHARED_DATA_OR_SKIP(vocabulary, "gpt2");
  GLUON_SHARED_DATA_OR_SKIP(text, "text/wikitext2-valid.txt.xz");
  const Tokenizer tokenizer(vocabulary);
  const TokenDataset data = TokenDataset::from_files(text.string(), {.context = 128}, &tokenizer);
  EXPECT_EQ(data.classes(), 50257);
  EXPECT_EQ(data.tokens(), static_cast<int64_t>(tokenizer.encode(read_file(text)).size()));
  EXPECT_GT(data.unigram_entropy(), 5.0);
  EXPECT_LT(data.unigram_entropy(), std::log(50257.0));
}

TEST(DefaultText, ContainsTheProjectsSources) {
  EXPECT_NE(default_text().find("\ngluon/update/optimizer.cpp\n"), std::string_view::npos);
  EXPECT_EQ(default_text().find("\nweb/node_modules/"), std::string_view::npos)
      << "must not contain installed packages";
}

}  // namespace
}  // namespace gluon::lab
