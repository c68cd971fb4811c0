#include "lab/data/tokenizer.h"

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
  Tokenizer tokenizer() {
    folder.write("encoder.json", encoder.dump());
    folder.write("vocab.bpe", merges);
    return Tokenizer(folder.path());
  }
};

/// Random bytes, or random sequences of pieces that are hard to split into words.
std::string hard_text(std::size_t pieces, uint32_t seed, bool random_bytes) {
  static const std::vector<std::string> kPieces = {" ",
                                                   "  ",
                                                   "\n",
                                                   "\r\n",
                                                   "\t",
                                                   "\u00a0",
                                                   "\u2003",
                                                   "\u0085",
                                                   "\u3000",
                                                   "\u180e",
                                                   "a",
                                                   "word",
                                                   "ab",
                                                   "\u00e9",
                                                   "\u4e2d",
                                                   "12",
                                                   "'s",
                                                   "'ll",
                                                   "'",
                                                   ".",
                                                   ">",
                                                   " >\n",
                                                   "<|endoftext|>",
                                                   "\n<|endoftext|>\n",
                                                   "\xff",
                                                   "\xe2\x80",
                                                   std::string(1, '\0')};
  std::mt19937 random(seed);
  std::string text;
  for (std::size_t i = 0; i < pieces; ++i) {
    if (random_bytes) {
      text.push_back(static_cast<char>(random()));
    } else {
      text += kPieces[random() % kPieces.size()];
    }
  }
  return text;
}

TEST(Tokenizer, MergesByRankFromTheLeft) {
  TinyVocabulary tiny;
  const Tokenizer tokenizer = tiny.tokenizer();
  EXPECT_EQ(tokenizer.vocabulary(), 261);
  EXPECT_EQ(tokenizer.end_of_text(), 260);
  EXPECT_EQ(tokenizer.encode("ab"), (Tokens{256}));
  EXPECT_EQ(tokenizer.encode("ababab"), (Tokens{257, 256}));
  EXPECT_EQ(tokenizer.encode("bab"), (Tokens{'b', 256}));
  EXPECT_EQ(tokenizer.encode("bba"), (Tokens{'b', 259}));
  EXPECT_EQ(tokenizer.encode("ab ab"), (Tokens{256, 258}));
  // The last of several blanks belongs to the word.
  EXPECT_EQ(tokenizer.encode("  ab"), (Tokens{' ', 258}));
  EXPECT_EQ(tokenizer.encode("ab1ab"), (Tokens{256, '1', 256}));
  EXPECT_EQ(tokenizer.encode(""), Tokens{});
}

TEST(Tokenizer, SeparatorLineIsOneToken) {
  TinyVocabulary tiny;
  const Tokenizer tokenizer = tiny.tokenizer();
  EXPECT_EQ(tokenizer.encode("<|endoftext|>\n"), (Tokens{260}));
  EXPECT_EQ(tokenizer.encode("ab\n<|endoftext|>\nab"), (Tokens{256, '\n', 260, 256}));
  EXPECT_EQ(tokenizer.encode("<|endoftext|>\n<|endoftext|>\n"), (Tokens{260, 260}));
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
  TinyVocabulary tiny;
  const Tokenizer tokenizer = tiny.tokenizer();
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
  TinyVocabulary tiny;
  const Tokenizer tokenizer = tiny.tokenizer();
  for (uint32_t seed = 0; seed < 3; ++seed) {
    for (const bool random_bytes : {false, true}) {
      const std::string text = hard_text(300000, seed, random_bytes);
      const Tokens tokens = tokenizer.encode(text);
      EXPECT_EQ(tokenizer.decode(tokens), text);
      EXPECT_EQ(tokenizer.encode_parallel(text, 1), tokens);
      EXPECT_EQ(tokenizer.encode_parallel(text, 5), tokens);
    }
  }
  EXPECT_TRUE(tokenizer.encode_parallel("", 3).empty());
}

// Every byte in front moves the ends of the pieces; the tokens must stay the same.
TEST(Tokenizer, ResultDoesNotDependOnPieces) {
  TinyVocabulary tiny;
  const Tokenizer tokenizer = tiny.tokenizer();
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
  TinyVocabulary tiny;
  const Tokenizer tokenizer = tiny.tokenizer();
  std::string word;
  for (int i = 0; i < 500000; ++i) word += "ab";
  const Tokens tokens = tokenizer.encode(word);  // a quadratic merge would take hours
  EXPECT_EQ(tokens, Tokens(250000, 257));
  const std::string blanks(1000000, ' ');
  EXPECT_EQ(tokenizer.encode(blanks), Tokens(blanks.size(), ' '));
}

TEST(Tokenizer, ProgressCallback) {
  TinyVocabulary tiny;
  const Tokenizer tokenizer = tiny.tokenizer();
  const std::string text = hard_text(300000, 1, false);
  int64_t last = 0;
  tokenizer.encode_parallel(text, 2, [&](int64_t bytes) {
    EXPECT_GT(bytes, last);
    last = bytes;
  });
  EXPECT_EQ(last, static_cast<int64_t>(text.size()));
  const auto stop = [](int64_t) { throw InputError("stopped"); };
  EXPECT_INPUT_ERROR(tokenizer.encode_parallel(text, 2, stop), "stopped");
  EXPECT_INPUT_ERROR(tokenizer.encode_parallel(text, 0), "expected at least one thread, got 0");
}

TEST(Tokenizer, BadVocabularyFiles) {
  const auto message = [](auto change) {
    TinyVocabulary tiny;
    change(tiny);
    try {
      tiny.tokenizer();
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  const auto expect = [&](auto change, const std::string& part) {
    const std::string text = message(change);
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  expect([](TinyVocabulary& v) { v.encoder = nlohmann::json::array(); }, "expected one JSON object from tokens to ids");
  expect([](TinyVocabulary& v) { v.encoder["ab"] = 900; }, "the ids must be 0..260, each once; token 'ab' has 900");
  expect([](TinyVocabulary& v) { v.encoder["ab"] = 7; }, "the ids must be 0..260, each once");
  expect([](TinyVocabulary& v) { v.encoder["ab"] = "x"; }, "token 'ab' has \"x\"");
  expect([](TinyVocabulary& v) { v.add("\u4e2d"); }, "is not written in GPT-2's alphabet of 256 characters");
  expect([](TinyVocabulary& v) { v.encoder.erase("<|endoftext|>"); }, "token '<|endoftext|>' is missing");
  expect(
      [](TinyVocabulary& v) {
        v.encoder.erase("z");
        v.encoder["zz"] = 'z';
      },
      "no token for the byte");
  expect([](TinyVocabulary& v) { v.merges += "a\n"; }, "vocab.bpe line 6: expected two tokens, got 'a'");
  expect([](TinyVocabulary& v) { v.merges += "a b c\n"; }, "line 6: expected two tokens, got 'a b c'");
  expect([](TinyVocabulary& v) { v.merges += "abc d\n"; }, "line 6: merges 'abc d' before both parts exist");
  expect([](TinyVocabulary& v) { v.merges += "a z\n"; }, "line 6: the result of 'a z' is not in encoder.json");
  expect([](TinyVocabulary& v) { v.merges += "a b\n"; }, "line 6: the result of 'a b' was merged before");

  TemporaryFolder folder;
  EXPECT_INPUT_ERROR(Tokenizer(folder.path()), "encoder.json': No such file or directory");
  folder.write("encoder.json", "{ no json");
  EXPECT_INPUT_ERROR(Tokenizer(folder.path()), "expected one JSON object");
  TinyVocabulary tiny;
  const Tokenizer tokenizer = tiny.tokenizer();
  EXPECT_INPUT_ERROR(tokenizer.decode(Tokens{1, 261}), "cannot decode token 261, the vocabulary has 261");
}

TEST(Tokenizer, MatchesGpt2) {
  GLUON_SHARED_DATA_OR_SKIP(folder, "gpt2");
  const Tokenizer tokenizer(folder);
  EXPECT_EQ(tokenizer.vocabulary(), 50257);
  EXPECT_EQ(tokenizer.end_of_text(), 50256);
  EXPECT_EQ(tokenizer.encode("Hello world"), (Tokens{15496, 995}));
  EXPECT_EQ(tokenizer.encode("Hello, world!"), (Tokens{15496, 11, 995, 0}));
  EXPECT_EQ(tokenizer.encode(" the"), (Tokens{262}));
  EXPECT_EQ(tokenizer.encode("\n"), (Tokens{198}));
  EXPECT_EQ(tokenizer.encode("\n\n"), (Tokens{628}));
  EXPECT_EQ(tokenizer.encode("This is some text"), (Tokens{1212, 318, 617, 2420}));
  EXPECT_EQ(tokenizer.encode("I'm sure they'll"), (Tokens{40, 1101, 1654, 484, 1183}));
  EXPECT_EQ(tokenizer.encode("a\n<|endoftext|>\nb"), (Tokens{64, 198, 50256, 65}));
  for (const bool random_bytes : {false, true}) {
    const std::string text = hard_text(200000, 4, random_bytes);
    const Tokens tokens = tokenizer.encode(text);
    EXPECT_EQ(tokenizer.decode(tokens), text);
    EXPECT_EQ(tokenizer.encode_parallel(text, 2), tokens);
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
  const Tokens tokens = tokenizer.encode_parallel(text, 2);
  EXPECT_EQ(tokenizer.decode(tokens), text);
  // The count of the original Python program.
  EXPECT_EQ(tokens.size(), 1656595U);
}

}  // namespace
}  // namespace gluon::lab
