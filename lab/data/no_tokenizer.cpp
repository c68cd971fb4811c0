#include "gluon/core/check.h"
#include "lab/data/tokenizer.h"

namespace gluon::lab {

Tokenizer::Tokenizer(const std::filesystem::path& folder) {
  throw InputError(
      join("tokenizer '", folder.string(),
           "': this program was built without PCRE2; tokenize on another machine and train on the shards"));
}

// The constructor always throws: nothing below is ever called.
int64_t Tokenizer::vocabulary() const { return 0; }
std::vector<uint16_t> Tokenizer::encode(std::string_view, int, const Progress&) const { return {}; }
std::string Tokenizer::decode(std::span<const uint16_t>) const { return {}; }

}  // namespace gluon::lab
