#include "lab/reproduce/materials.h"

#include <ATen/Parallel.h>

#include <string_view>
#include <vector>

#include "gluon/core/atomic_file.h"
#include "lab/data/input_file.h"
#include "lab/data/permutation.h"
#include "lab/data/token_shard.h"
#include "lab/data/tokenizer.h"

namespace gluon::lab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kBytesSource = "text/openwebtext-sample.txt.xz";
constexpr const char* kTokensSource = "text/wikipedia.txt.xz";
constexpr int64_t kValidationBytes = 1 << 16;   // of the small models: an evaluation in about a second
constexpr int64_t kValidationTokens = 1 << 21;  // of the large one
constexpr int64_t kBytesPerToken = 6;           // of English text, more than GPT-2's average of 4.5
constexpr uint64_t kOrder = 20241001;           // of the documents

// Each with the line that separates it from the next one.
std::vector<std::string_view> documents_of(std::string_view text) {
  const std::string separator = join("\n", Tokenizer::kSeparator, "\n");
  std::vector<std::string_view> documents;
  while (!text.empty()) {
    const std::size_t at = text.find(separator);
    const std::size_t size = at == std::string_view::npos ? text.size() : at + separator.size();
    documents.push_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return documents;
}

struct Split {
  std::string validation;  // at least as many bytes as asked for
  std::string train;
};

Split shuffled(std::string_view text, int64_t validation_bytes, const fs::path& source) {
  const std::vector<std::string_view> documents = documents_of(text);
  const auto count = static_cast<int64_t>(documents.size());
  GLUON_CHECK(std::ssize(text) > 2 * validation_bytes, "reproduce: ", source.string(), " must have more than ",
              2 * validation_bytes, " bytes, got ", text.size());
  Split split;
  split.train.reserve(text.size());
  for (int64_t i = 0; i < count; ++i) {
    const std::string_view document = documents[static_cast<std::size_t>(permuted(i, count, kOrder))];
    (std::ssize(split.validation) < validation_bytes ? split.validation : split.train) += document;
  }
  GLUON_CHECK(!split.train.empty(), "reproduce: ", source.string(), " must have several documents, got ", count);
  return split;
}

// A file alone is somebody else's, or what a kill between the two left.
bool is_prepared(const Corpus& corpus, const Announce& announce) {
  const bool train = fs::exists(corpus.train), validation = fs::exists(corpus.validation);
  GLUON_CHECK(train == validation, "reproduce: ", train ? corpus.train : corpus.validation, " is there without ",
              train ? corpus.validation : corpus.train, "; remove it or choose another --out");
  if (!train) return false;
  announce(join(corpus.train, " has been prepared before, --data is not read for it"));
  return true;
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  GLUON_CHECK(!error, "reproduce: cannot create ", folder.string(), ": ", error.message());
}

}  // namespace

fs::path material(const fs::path& data, const std::string& name) {
  if (!fs::exists(data / name))
    throw MissingMaterial(join("needs ", (data / name).string(), "; --data names its folder"));
  return data / name;
}

Corpus prepare_bytes(const fs::path& data, const fs::path& folder, const Announce& announce,
                     const std::atomic<bool>& /*stop*/) {
  const fs::path train = folder / "train.txt", validation = folder / "validation.txt";
  const Corpus corpus{train.string(), validation.string(), kValidationBytes};
  if (is_prepared(corpus, announce)) return corpus;
  const fs::path source = data / kBytesSource;
  if (!fs::exists(source)) {
    announce(join("there is no ", source.string(), ": language models train on Gluon's own sources"));
    return {};
  }
  const Split split = shuffled(read_file(source), 2 * kValidationBytes, source);
  make_folder(folder);
  write_text_atomically(train, split.train);
  write_text_atomically(validation, split.validation);
  return corpus;
}

Corpus prepare_tokens(const fs::path& data, const fs::path& folder, const Announce& announce,
                      const std::atomic<bool>& stop) {
  const fs::path train = folder / "train.bin", validation = folder / "validation.bin";
  const Corpus corpus{train.string(), validation.string(), kValidationTokens};
  if (is_prepared(corpus, announce)) return corpus;
  const fs::path source = material(data, kTokensSource);
  const Tokenizer tokenizer(material(data, "gpt2"));
  announce(join("tokenizing ", source.string()));
  const Split split = shuffled(read_file(source), kBytesPerToken * kValidationTokens, source);
  const auto tokens = [&](std::string_view text) {
    return tokenizer.encode(text, at::get_num_threads(), [&](int64_t) {
      if (stop) throw Stopped();
    });
  };
  const std::vector<uint16_t> training = tokens(split.train), rest = tokens(split.validation);
  make_folder(folder);
  write_token_shard(train, training);
  write_token_shard(validation, rest);
  return corpus;
}

}  // namespace gluon::lab
