#include "lab/reproduce/materials.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>

#include "gluon/core/atomic_file.h"
#include "lab/data/input_file.h"
#include "tests/expect_error.h"
#include "tests/lab/data/packed.h"
#include "tests/lab/data/shared_data.h"
#include "tests/temporary_folder.h"

namespace gluon::lab {
namespace {

namespace fs = std::filesystem;

constexpr int kDocuments = 2000;

// "000012 000012 ...", with its separator.
std::string document(int number) {
  char word[16];
  std::snprintf(word, sizeof word, "%06d ", number);
  std::string text;
  for (int k = 0; k < 30; ++k) text += word;
  return text + "\n<|endoftext|>\n";
}

std::string source() {
  std::string text;
  for (int i = 0; i < kDocuments; ++i) text += document(i);
  return text;
}

class Materials : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(data_ / "text");
    folder_.write("data/text/openwebtext-sample.txt.xz", packed(source()));
  }

  Corpus prepare() {
    return prepare_bytes(
        data_, out_, [this](const std::string& line) { said_.push_back(line); }, stop_);
  }

  TemporaryFolder folder_;
  fs::path data_ = folder_.path() / "data", out_ = folder_.path() / "out";
  std::atomic<bool> stop_ = false;
  std::vector<std::string> said_;
};

TEST_F(Materials, EveryDocumentIsInOnePartWhole) {
  const Corpus corpus = prepare();
  const std::string train = read_file(corpus.train), validation = read_file(corpus.validation);
  for (int i = 0; i < kDocuments; ++i) {
    EXPECT_NE(train.find(document(i)) != std::string::npos, validation.find(document(i)) != std::string::npos) << i;
  }
  EXPECT_EQ(train.size() + validation.size(), source().size());
  EXPECT_GE(std::ssize(validation), corpus.validation_tokens);
}

TEST_F(Materials, DocumentsAreShuffled) {
  const std::string validation = read_file(prepare().validation);
  const std::size_t size = document(0).size(), count = validation.size() / size;
  std::size_t late = 0;  // those of the source's second half
  for (std::size_t i = 0; i < count; ++i) late += validation.substr(i * size, 6) >= "001000";
  EXPECT_GT(late, count / 4);
  EXPECT_LT(late, 3 * count / 4);
}

TEST_F(Materials, WhatIsPreparedStays) {
  const Corpus first = prepare();
  write_text_atomically(first.train, "kept");
  EXPECT_TRUE(said_.empty());
  EXPECT_EQ(read_file(prepare().train), "kept");
  ASSERT_EQ(said_.size(), 1u);
  EXPECT_EQ(said_[0], first.train + " has been prepared before, --data is not read for it");
}

TEST_F(Materials, WithoutTextTheSmallModelsTrainOnTheProjectsSources) {
  data_ = folder_.path() / "nothing";
  EXPECT_EQ(prepare().train, "");
  ASSERT_EQ(said_.size(), 1u);
  EXPECT_NE(said_[0].find("language models train on Gluon's own sources"), std::string::npos) << said_[0];
}

TEST_F(Materials, TokenizingStopsOnASignal) {
  GLUON_SHARED_DATA_OR_SKIP(vocabulary, "gpt2");
  fs::create_directory_symlink(vocabulary, data_ / "gpt2");
  std::string text;
  while (text.size() < 27'000'000) text += document(static_cast<int>(text.size() % 1000));
  folder_.write("data/text/wikipedia.txt.xz", packed(text));
  stop_ = true;
  EXPECT_THROW(prepare_tokens(
                   data_, out_, [](const std::string&) {}, stop_),
               Stopped);
  EXPECT_FALSE(fs::exists(out_));
}

TEST_F(Materials, BadSources) {
  folder_.write("data/text/openwebtext-sample.txt.xz", packed(std::string(300000, 'x')));
  EXPECT_INPUT_ERROR(prepare(), "must have several documents, got 1");
  folder_.write("data/text/openwebtext-sample.txt.xz", packed("short"));
  EXPECT_INPUT_ERROR(prepare(), "data/text/openwebtext-sample.txt.xz must have more than 262144 bytes, got 5");
  EXPECT_INPUT_ERROR(prepare_tokens(
                         data_, out_, [](const std::string&) {}, stop_),
                     "text/wikipedia.txt.xz; --data names its folder");
  EXPECT_THROW(material(data_, "cifar10"), MissingMaterial);
  EXPECT_FALSE(fs::exists(out_));
}

}  // namespace
}  // namespace gluon::lab
