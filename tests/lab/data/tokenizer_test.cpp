#include "lab/data/tokenizer.h"

#include <array>
#include <nlohmann/json.hpp>
#include <random>

#include "lab/data/input_file.h"
#include "tests/expect_error.h"
#include "tests/lab/data/shared_data.h"
#include "tests/temporary_folder.h"

namespace gluon::lab {
namespace {

using Tokens = std::vector<uint16_t>;

std::string utf8(int code) {
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
}

/// A vocabulary in GPT-2's files: all bytes, a few merges, the separator. The blank is written U+0120.
struct TinyVocabulary {
  TemporaryFolder folder;
  nlohmann::json encoder = nlohmann::json::object();
  std::string merges = "#version: 0.2\n";

  TinyVocabulary() {
    int other = 256;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
      add(utf8(printable ? byte : other++));
    }
    merge("a", "b");        // 256
    merge("ab", "ab");      // 257
    merge("\u0120", "ab");  // 258
    merge("b", "a");        // 259
    encoder["<|endoftext|>"] = 260;
  }

  void add(const std::string& token) {
    const auto id = encoder.size();
    encoder[token] = id;
  }
  void merge(const std::string& left, const std::string& right) {
    add(left + right);
    merges += left + " " + right + "\n";
  }
  Tokenizer tokenizer() const {
    folder.write("encoder.json", encoder.dump());
    folder.write("vocab.bpe", merges);
    return Tokenizer(folder.path());
  }
};

void expect_tokens(const Tokenizer& tokenizer, const std::vector<std::pair<std::string, Tokens>>& cases) {
  for (const auto& [text, tokens] : cases) {
    EXPECT_EQ(tokenizer.encode(text), tokens) << text;
    EXPECT_EQ(tokenizer.decode(tokens), text);
  }
}

/// Random bytes, or random sequences of pieces that are hard to split into words.
std::string hard_text(std::size_t pieces, uint32_t seed, bool random_bytes) {
  using namespace std::literals;
  static const auto kPieces = std::to_array<std::string_view>(
      {" ",      "  ",       "\n",  "\r\n", "\t", "\u00a0", "\u2003",        "\u0085",
       "\u3000", "\u180e",   "a",   "word", "ab", "\u00e9", "\u4e2d",        "12",
       "'s",     "'ll",      "'",   ".",    ">",  " >\n",   "<|endoftext|>", "\n<|endoftext|>\n",
       "\xff",   "\xe2\x80", "\0"sv});
  std::mt19937 random(seed);
  std::string text;
  for (std::size_t i = 0; i < pieces; ++i) {
    const auto bits = random();
    const auto byte = static_cast<char>(bits);
    text += random_bytes ? std::string_view(&byte, 1) : kPieces[bits % kPieces.size()];
  }
  return text;
}

TEST(Tokenizer, MergesByRankFromTheLeft) {
  const Tokenizer tokenizer = TinyVocabulary().tokenizer();
  EXPECT_EQ(tokenizer.vocabulary(), 261);
  expect_tokens(tokenizer, {{"ab", {256}},
                            {"ababab", {257, 256}},
                            {"bab", {'b', 256}},
                            {"bba", {'b', 259}},
                            {"ab ab", {256, 258}},
                            {"  ab", {' ', 258}},  // the last of several blanks belongs to the word
                            {"ab1ab", {256, '1', 256}},
                            {"", {}}});
}

TEST(Tokenizer, SeparatorLineIsOneToken) {
  const Tokenizer tokenizer = TinyVocabulary().tokenizer();
  expect_tokens(tokenizer, {{"<|endoftext|>\n", {260}},
                            {"ab\n<|endoftext|>\nab", {256, '\n', 260, 256}},
                            {"<|endoftext|>\n<|endoftext|>\n", {260, 260}}});
  // Not a whole line, or one without newline: ordinary text.
  for (const std::string text :
       {"<|endoftext|>", "ab<|endoftext|>\n", "<|endoftext|> \n", " <|endoftext|>\n", "<|endoftext|>\r\n"}) {
    const Tokens tokens = tokenizer.encode(text);
    EXPECT_EQ(std::count(tokens.begin(), tokens.end(), 260), 0) << text;
    EXPECT_EQ(tokenizer.decode(tokens), text);
  }
  EXPECT_EQ(tokenizer.decode(Tokens{256, 260, 256}), "ab<|endoftext|>\nab");
}

TEST(Tokenizer, RoundTripsAnyBytes) {
  const Tokenizer tokenizer = TinyVocabulary().tokenizer();
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(all)), all);
  for (uint32_t seed = 0; seed < 200; ++seed) {
    for (const bool random_bytes : {false, true}) {
      const std::string text = hard_text(seed * 5, seed, random_bytes);
      ASSERT_EQ(tokenizer.decode(tokenizer.encode(text)), text) << seed;
    }
  }
}

TEST(Tokenizer, ResultDoesNotDependOnThreads) {
  const Tokenizer tokenizer = TinyVocabulary().tokenizer();
  for (uint32_t seed = 0; seed < 3; ++seed) {
    for (const bool random_bytes : {false, true}) {
      const std::string text = hard_text(300000, seed, random_bytes);
      const Tokens tokens = tokenizer.encode(text);
      EXPECT_EQ(tokenizer.decode(tokens), text);
      EXPECT_EQ(tokenizer.encode(text, 5), tokens);
    }
  }
  EXPECT_TRUE(tokenizer.encode("", 3).empty());
}

// Every byte in front moves the ends of the pieces; the tokens must stay the same.
TEST(Tokenizer, ResultDoesNotDependOnPieces) {
  const Tokenizer tokenizer = TinyVocabulary().tokenizer();
  const std::string text = hard_text(200000, 9, false);
  const Tokens tokens = tokenizer.encode(text);
  for (std::size_t shift = 1; shift < 60; ++shift) {
    // After a separator line the encoding is the same as at the start of a text.
    const std::string front = std::string(shift * 7, 'z') + "\n<|endoftext|>\n";
    const Tokens shifted = tokenizer.encode(front + text);
    const Tokens before = tokenizer.encode(front);
    ASSERT_EQ(Tokens(shifted.begin() + static_cast<int64_t>(before.size()), shifted.end()), tokens) << shift;
  }
}

TEST(Tokenizer, LongWordsAreFast) {
  const Tokenizer tokenizer = TinyVocabulary().tokenizer();
  std::string word;
  for (int i = 0; i < 500000; ++i) word += "ab";
  const Tokens tokens = tokenizer.encode(word);  // a quadratic merge would take hours
  EXPECT_EQ(tokens, Tokens(250000, 257));
  const std::string blanks(1000000, ' ');
  EXPECT_EQ(tokenizer.encode(blanks), Tokens(blanks.size(), ' '));
}

TEST(Tokenizer, ProgressCallback) {
  const Tokenizer tokenizer = TinyVocabulary().tokenizer();
  const std::string text = hard_text(300000, 1, false);
  int64_t last = 0;
  tokenizer.encode(text, 2, [&](int64_t bytes) {
    EXPECT_GT(bytes, last);
    last = bytes;
  });
  EXPECT_EQ(last, static_cast<int64_t>(text.size()));
  const auto stop = [](int64_t) { throw InputError("stopped"); };
  EXPECT_INPUT_ERROR(tokenizer.encode(text, 2, stop), "stopped");
  EXPECT_INPUT_ERROR(tokenizer.encode(text, 0), "expected at least one thread, got 0");
}

TEST(Tokenizer, BadVocabularyFiles) {
  using Change = void (*)(TinyVocabulary&);
  const std::vector<std::pair<Change, const char*>> cases = {
      {[](TinyVocabulary& v) { v.encoder = nlohmann::json::array(); }, "expected one JSON object from tokens to ids"},
      {[](TinyVocabulary& v) { v.encoder["ab"] = 900; }, "the ids must be 0..260, each once; token 'ab' has 900"},
      {[](TinyVocabulary& v) { v.encoder["ab"] = 7; }, "the ids must be 0..260, each once"},
      {[](TinyVocabulary& v) { v.encoder["ab"] = "x"; }, "token 'ab' has \"x\""},
      {[](TinyVocabulary& v) { v.add("\u4e2d"); }, "is not written in GPT-2's alphabet of 256 characters"},
      {[](TinyVocabulary& v) { v.encoder.erase("<|endoftext|>"); }, "token '<|endoftext|>' is missing"},
      {[](TinyVocabulary& v) { v.encoder.erase("z"), v.encoder["zz"] = 'z'; }, "no token for the byte"},
      {[](TinyVocabulary& v) { v.merges += "a\n"; }, "vocab.bpe line 6: expected two tokens, got 'a'"},
      {[](TinyVocabulary& v) { v.merges += "a b c\n"; }, "line 6: expected two tokens, got 'a b c'"},
      {[](TinyVocabulary& v) { v.merges += "abc d\n"; }, "line 6: merges 'abc d' before both parts exist"},
      {[](TinyVocabulary& v) { v.merges += "a z\n"; }, "line 6: the result of 'a z' is not in encoder.json"},
      {[](TinyVocabulary& v) { v.merges += "a b\n"; }, "line 6: the result of 'a b' was merged before"},
      // Cut between two lines, and empty: every token must be made, or other tokens would come out.
      {[](TinyVocabulary& v) { v.merges.resize(v.merges.rfind("b a")); },
       "vocab.bpe makes 3 tokens by merging, encoder.json has 4 beside the 256 bytes and '<|endoftext|>'"},
      {[](TinyVocabulary& v) { v.merges.clear(); }, "vocab.bpe makes 0 tokens by merging, encoder.json has 4"}};
  for (const auto& [change, message] : cases) {
    TinyVocabulary vocabulary;
    change(vocabulary);
    EXPECT_INPUT_ERROR(vocabulary.tokenizer(), message);
  }
  TemporaryFolder folder;
  EXPECT_INPUT_ERROR(Tokenizer(folder.path()), "encoder.json': No such file or directory");
  folder.write("encoder.json", "{ no json");
  EXPECT_INPUT_ERROR(Tokenizer(folder.path()), "encoder.json is not JSON");
  folder.write("encoder.json", "{\"a\":" + std::string(3'000'000, '[') + std::string(3'000'000, ']') + "}");
  EXPECT_INPUT_ERROR(Tokenizer(folder.path()), "encoder.json is nested deeper than 32 levels");
  const Tokenizer tokenizer = TinyVocabulary().tokenizer();
  EXPECT_INPUT_ERROR(tokenizer.decode(Tokens{1, 261}), "cannot decode token 261, the vocabulary has 261");
}

TEST(Tokenizer, MatchesGpt2) {
  GLUON_SHARED_DATA_OR_SKIP(folder, "gpt2");
  const Tokenizer tokenizer(folder);
  EXPECT_EQ(tokenizer.vocabulary(), 50257);
  expect_tokens(tokenizer, {{"Hello world", {15496, 995}},
                            {"Hello, world!", {15496, 11, 995, 0}},
                            {" the", {262}},
                            {"\n", {198}},
                            {"\n\n", {628}},
                            {"This is some text", {1212, 318, 617, 2420}},
                            {"I'm sure they'll", {40, 1101, 1654, 484, 1183}},
                            {"a\n<|endoftext|>\nb", {64, 198, 50256, 65}}});
  for (const bool random_bytes : {false, true}) {
    const std::string text = hard_text(200000, 4, random_bytes);
    const Tokens tokens = tokenizer.encode(text);
    EXPECT_EQ(tokenizer.decode(tokens), text);
    EXPECT_EQ(tokenizer.encode(text, 2), tokens);
  }
}

TEST(Tokenizer, MatchesPublishedTokenCounts) {
  GLUON_SHARED_DATA_OR_SKIP(folder, "gpt2");
  GLUON_SHARED_DATA_OR_SKIP(shakespeare, "text/tinyshakespeare.txt");
  const std::string text = read_file(shakespeare);
  const Tokenizer tokenizer(folder);
  // nanoGPT's data/shakespeare: the first 90 % of the characters, and the rest.
  const std::size_t cut = text.size() * 9 / 10;
  EXPECT_EQ(tokenizer.encode(std::string_view(text).substr(0, cut)).size(), 301966U);
  EXPECT_EQ(tokenizer.encode(std::string_view(text).substr(cut)).size(), 36059U);
}

TEST(Tokenizer, RoundTripsRealText) {
  GLUON_SHARED_DATA_OR_SKIP(folder, "gpt2");
  GLUON_SHARED_DATA_OR_SKIP(path, "text/openwebtext-sample.txt.xz");
  const std::string text = read_file(path);
  const Tokenizer tokenizer(folder);
  const Tokens tokens = tokenizer.encode(text, 2);
  EXPECT_EQ(tokenizer.decode(tokens), text);
  // The count of the original Python program.
  EXPECT_EQ(tokens.size(), 1656595U);
}

}  // namespace
}  // namespace gluon::lab
