#include "lab/data/tokenizer.h"

#include "tests/fuzz/fuzz_targets.h"
#include "tests/fuzz/scratch.h"

// encoder.json, a NUL byte, vocab.bpe; a second NUL byte starts the text.
void gluon::fuzz::tokenizer(std::string_view bytes) {
  static const Scratch scratch("tokenizer");
  const auto take = [&] {
    const std::string_view part = bytes.substr(0, bytes.find('\0'));
    bytes.remove_prefix(std::min(part.size() + 1, bytes.size()));
    return part;
  };
  scratch.write("encoder.json", take());
  scratch.write("vocab.bpe", take());
  const lab::Tokenizer tokenizer(scratch.folder());
  const std::string text = std::string(bytes) + " abab ab\n<|endoftext|>\n\xff it's 12";
  require(tokenizer.decode(tokenizer.encode(text)) == text);
}
