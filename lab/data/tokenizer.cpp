#define PCRE2_CODE_UNIT_WIDTH 8
#include "lab/data/tokenizer.h"

#include <pcre2.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <queue>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "gluon/core/check.h"
#include "gluon/core/json.h"
#include "lab/data/input_file.h"

namespace gluon::lab {
namespace {

// Small, because PCRE2 without JIT validates the rest of the piece before every word.
constexpr std::size_t kPieceBytes = std::size_t{1} << 13;
constexpr std::size_t kMaxVocabulary = std::size_t{1} << 16;
// The cache is cleared beyond this size, about 30 MB per thread: most words occur once.
constexpr std::size_t kMaxCachedWords = std::size_t{1} << 18;
constexpr std::size_t kMaxCachedWordBytes = 64;

using Code = std::unique_ptr<pcre2_code, void (*)(pcre2_code*)>;
using MatchData = std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)>;

struct Merge {
  uint32_t rank;
  uint16_t merged;
};

using Ids = std::unordered_map<std::string, uint16_t>;  // by bytes
using Merges = std::unordered_map<uint32_t, Merge>;     // by pair_key

uint32_t pair_key(uint16_t left, uint16_t right) { return uint32_t{left} << 16 | right; }

/// GPT-2 writes bytes as printable characters: those printable in Latin-1 as themselves, the other 68 as U+0100
/// and following. Returns the byte of each code point below 324, or -1.
std::array<int, 324> bytes_of_characters() {
  std::array<int, 324> bytes;
  bytes.fill(-1);
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    bytes[printable ? byte : next++] = byte;
  }
  return bytes;
}

/// The bytes of `written`, a token in the vocabulary files.
std::string bytes_of(std::string_view written, const std::string& file) {
  static const std::array<int, 324> table = bytes_of_characters();
  std::string bytes;
  for (std::size_t i = 0; i < written.size(); ++i) {
    unsigned code = static_cast<unsigned char>(written[i]);
    // All characters of the alphabet take one or two bytes of UTF-8.
    if ((code & 0xe0) == 0xc0 && i + 1 < written.size()) {
      code = (code & 0x1f) << 6 | (static_cast<unsigned char>(written[++i]) & 0x3f);
    }
    GLUON_CHECK(code < table.size() && table[code] >= 0, file, ": token '", written,
                "' is not written in GPT-2's alphabet of 256 characters");
    bytes.push_back(static_cast<char>(table[code]));
  }
  return bytes;
}

Code compiled_words() {
  // \s of the original is Unicode's White_Space; PCRE2's own \s differs from it at U+180E.
  const std::string white =
      R"(\x09-\x0d\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
  const std::string words = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\p{L}\p{N})" + white + "]+|[" + white +
                            "]+(?![^" + white + "])|[" + white + "]+";
  int error = 0;
  PCRE2_SIZE offset = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(words.data()), words.size(), PCRE2_UTF | PCRE2_MATCH_INVALID_UTF,
                          &error, &offset, nullptr),
            pcre2_code_free);
  GLUON_CHECK(code != nullptr, "Tokenizer: PCRE2 rejects the expression for words at ", offset, " with error ", error,
              "; it needs PCRE2 10.34 or newer with Unicode");
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  return code;
}

/// Token ids by bytes, from encoder.json; the separator keeps its written form.
Ids read_encoder(const std::filesystem::path& path) {
  const std::string file = path.string();
  const nlohmann::json json = parse_json(read_file(path), file);
  GLUON_CHECK(json.is_object(), file, ": expected one JSON object from tokens to ids");
  GLUON_CHECK(json.size() <= kMaxVocabulary, file, ": at most ", kMaxVocabulary, " tokens fit 16 bits, got ",
              json.size());
  Ids ids;
  std::vector<bool> taken(json.size());
  for (const auto& [written, id] : json.items()) {
    GLUON_CHECK(id.is_number_unsigned() && id.get<uint64_t>() < json.size() && !taken[id.get<uint64_t>()], file,
                ": the ids must be 0..", json.size() - 1, ", each once; token '", written, "' has ", id.dump());
    taken[id.get<uint64_t>()] = true;
    ids.emplace(written == Tokenizer::kSeparator ? written : bytes_of(written, file), id.get<uint16_t>());
  }
  GLUON_CHECK(ids.contains(std::string(Tokenizer::kSeparator)), file, ": token '", Tokenizer::kSeparator,
              "' is missing");
  return ids;
}

/// The merges of vocab.bpe, a pair of tokens per line in the order of their ranks. Every token is made once, after
/// its parts. So a new pair ranks above the merge that made it, and the queue of Encoder::merge gives the result of
/// the repeated scans of the original.
Merges read_merges(const std::filesystem::path& path, const Ids& ids) {
  const std::string file = path.string();
  const std::string text = read_file(path);
  Merges merges;
  std::vector<bool> made(ids.size());
  int64_t number = 0;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    const std::string_view line = std::string_view(text).substr(start, end - start);
    start = end + 1;
    if (++number; line.empty() || line.starts_with("#version")) continue;
    const std::size_t blank = line.find(' ');
    GLUON_CHECK(blank != line.npos && line.find(' ', blank + 1) == line.npos, file, " line ", number,
                ": expected two tokens, got '", line, "'");
    const std::string left = bytes_of(line.substr(0, blank), file);
    const std::string right = bytes_of(line.substr(blank + 1), file);
    for (const std::string& part : {left, right}) {
      GLUON_CHECK(part.size() == 1 || (ids.contains(part) && made[ids.at(part)]), file, " line ", number, ": merges '",
                  line, "' before both parts exist");
    }
    const auto merged = ids.find(left + right);
    GLUON_CHECK(merged != ids.end() && left + right != Tokenizer::kSeparator, file, " line ", number,
                ": the result of '", line, "' is not in encoder.json");
    GLUON_CHECK(!made[merged->second], file, " line ", number, ": the result of '", line, "' was merged before");
    made[merged->second] = true;
    merges.emplace(pair_key(ids.at(left), ids.at(right)), Merge{static_cast<uint32_t>(merges.size()), merged->second});
  }
  constexpr std::size_t kUnmerged = 256 + 1;  // the bytes and the separator
  GLUON_CHECK(merges.size() + kUnmerged == ids.size(), file, " makes ", merges.size(),
              " tokens by merging, encoder.json has ", ids.size() - kUnmerged, " beside the 256 bytes and '",
              Tokenizer::kSeparator, "'; is one of the files cut?");
  return merges;
}

/// The end of the piece that starts at `start`: the first blank after kPieceBytes where it may be cut. A blank after
/// '>' may end a separator and is not used.
std::size_t piece_end(std::string_view text, std::size_t start) {
  for (std::size_t i = start + kPieceBytes; i < text.size(); ++i) {
    const bool blank = text[i] == ' ' || text[i] == '\n';
    if (blank && text[i - 1] > ' ' && text[i - 1] <= '~' && text[i - 1] != '>') return i;
  }
  return text.size();
}

/// The start of the first separator line, or npos. A text starts with a line.
std::size_t find_separator(std::string_view text) {
  for (std::size_t start = 0;; ++start) {
    start = text.find(Tokenizer::kSeparator, start);
    if (start == std::string_view::npos) return start;
    const std::size_t end = start + Tokenizer::kSeparator.size();
    if ((start == 0 || text[start - 1] == '\n') && end < text.size() && text[end] == '\n') return start;
  }
}

}  // namespace

struct Tokenizer::Tables {
  std::vector<std::string> bytes;             // of each token
  std::array<uint16_t, 256> token_of_byte{};  // single bytes
  Merges merges;                              // by pair of tokens
  uint16_t end_of_text = 0;
  Code words{nullptr, pcre2_code_free};
};

/// The state of one thread: the buffers of the matcher and a cache of words.
class Tokenizer::Encoder {
 public:
  explicit Encoder(const Tables& tables)
      : tables_(tables), match_(pcre2_match_data_create(1, nullptr), pcre2_match_data_free) {}

  /// Appends the tokens of `piece`, which is the text or ends at piece_end().
  void encode(std::string_view piece, std::vector<uint16_t>& tokens) {
    for (std::size_t at; (at = find_separator(piece)) != std::string_view::npos;) {
      encode_document(piece.substr(0, at), tokens);
      tokens.push_back(tables_.end_of_text);
      piece.remove_prefix(at + kSeparator.size() + 1);
    }
    encode_document(piece, tokens);
  }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view word) const { return std::hash<std::string_view>()(word); }
  };

  void encode_document(std::string_view text, std::vector<uint16_t>& tokens) {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    const PCRE2_SIZE* const found = pcre2_get_ovector_pointer(match_.get());
    std::size_t done = 0;
    while (done < text.size()) {
      const int count = pcre2_match(tables_.words.get(), subject, text.size(), done, 0, match_.get(), nullptr);
      GLUON_CHECK(count > 0 || count == PCRE2_ERROR_NOMATCH, "Tokenizer: PCRE2 failed with error ", count);
      const auto [first, end] = count > 0 ? std::pair(found[0], found[1]) : std::pair(text.size(), text.size());
      if (first > done) encode_word(text.substr(done, first - done), tokens);
      if (end > first) encode_word(text.substr(first, end - first), tokens);
      done = end;
    }
  }

  void encode_word(std::string_view word, std::vector<uint16_t>& tokens) {
    if (word.size() > kMaxCachedWordBytes) {
      merge(word, tokens);
      return;
    }
    auto known = cache_.find(word);
    if (known == cache_.end()) {
      if (cache_.size() >= kMaxCachedWords) cache_.clear();
      known = cache_.emplace(word, std::vector<uint16_t>()).first;
      merge(word, known->second);
    }
    tokens.insert(tokens.end(), known->second.begin(), known->second.end());
  }

  /// Byte-pair merging in O(n log n): a list of the tokens and a queue of mergeable pairs by rank, then place.
  void merge(std::string_view word, std::vector<uint16_t>& tokens) {
    const auto size = static_cast<uint32_t>(word.size());
    list_.resize(size);
    for (uint32_t i = 0; i < size; ++i) {
      list_[i] = {tables_.token_of_byte[static_cast<unsigned char>(word[i])], true, i - 1, i + 1};
    }
    for (uint32_t i = 0; i + 1 < size; ++i) push_pair(i, i + 1);
    while (!pairs_.empty()) {
      const auto [rank, left, right, before, after] = pairs_.top();
      pairs_.pop();
      Node& node = list_[left];
      // The pair is stale if either side has been merged since it was queued.
      const bool stale = !node.alive || node.next != right || node.token != before || list_[right].token != after;
      if (stale) continue;
      node.token = tables_.merges.at(pair_key(before, after)).merged;
      node.next = list_[right].next;
      list_[right].alive = false;
      if (node.next < size) {
        list_[node.next].previous = left;
        push_pair(left, node.next);
      }
      if (left > 0) push_pair(node.previous, left);
    }
    for (uint32_t i = 0; i < size; i = list_[i].next) tokens.push_back(list_[i].token);
  }

  void push_pair(uint32_t left, uint32_t right) {
    const auto merge = tables_.merges.find(pair_key(list_[left].token, list_[right].token));
    if (merge == tables_.merges.end()) return;
    pairs_.emplace(merge->second.rank, left, right, list_[left].token, list_[right].token);
  }

  struct Node {
    uint16_t token;
    bool alive;
    uint32_t previous, next;
  };
  using Pair = std::tuple<uint32_t, uint32_t, uint32_t, uint16_t, uint16_t>;  // rank, places, tokens

  const Tables& tables_;
  MatchData match_;
  std::vector<Node> list_;
  std::priority_queue<Pair, std::vector<Pair>, std::greater<>> pairs_;
  std::unordered_map<std::string, std::vector<uint16_t>, Hash, std::equal_to<>> cache_;
};

Tokenizer::Tokenizer(const std::filesystem::path& folder) {
  const std::filesystem::path encoder = folder / "encoder.json";
  const Ids ids = read_encoder(encoder);
  auto tables = std::make_shared<Tables>();
  tables->bytes.resize(ids.size());
  for (const auto& [bytes, id] : ids) tables->bytes[id] = bytes;
  tables->end_of_text = ids.at(std::string(kSeparator));
  tables->bytes[tables->end_of_text] += '\n';
  for (int byte = 0; byte < 256; ++byte) {
    const auto id = ids.find(std::string(1, static_cast<char>(byte)));
    GLUON_CHECK(id != ids.end(), encoder.string(), ": no token for the byte ", byte, "; all 256 are needed");
    tables->token_of_byte[byte] = id->second;
  }
  tables->merges = read_merges(folder / "vocab.bpe", ids);
  tables->words = compiled_words();
  tables_ = std::move(tables);
}

int64_t Tokenizer::vocabulary() const { return static_cast<int64_t>(tables_->bytes.size()); }

std::vector<uint16_t> Tokenizer::encode(std::string_view text, int threads, const Progress& progress) const {
  GLUON_CHECK(threads >= 1, "Tokenizer: expected at least one thread, got ", threads);
  std::vector<std::size_t> cuts{0};
  while (cuts.back() < text.size()) cuts.push_back(piece_end(text, cuts.back()));
  const std::size_t count = cuts.size() - 1;

  std::vector<std::vector<uint16_t>> pieces(count);
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;  // guards done, failure and the callback
  int64_t done = 0;
  std::exception_ptr failure;
  const auto work = [&] {
    try {
      Encoder encoder(*tables_);
      for (std::size_t i = next++; i < count; i = next++) {
        const std::string_view piece = text.substr(cuts[i], cuts[i + 1] - cuts[i]);
        encoder.encode(piece, pieces[i]);
        const std::lock_guard lock(mutex);
        done += static_cast<int64_t>(piece.size());
        if (progress) progress(done);
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
      next = count;
    }
  };
  {
    std::vector<std::jthread> workers;
    for (int i = 0; i < threads; ++i) workers.emplace_back(work);
  }
  if (failure) std::rethrow_exception(failure);

  std::vector<uint16_t> tokens;
  for (const auto& piece : pieces) tokens.insert(tokens.end(), piece.begin(), piece.end());
  return tokens;
}

std::string Tokenizer::decode(std::span<const uint16_t> tokens) const {
  std::string text;
  for (const uint16_t token : tokens) {
    GLUON_CHECK(token < tables_->bytes.size(), "Tokenizer: cannot decode token ", token, ", the vocabulary has ",
                tables_->bytes.size());
    text += tables_->bytes[token];
  }
  return text;
}

}  // namespace gluon::lab
