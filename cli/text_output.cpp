#include "cli/text_output.h"

#include <algorithm>
#include <iostream>
#include <string>
#include <string_view>

#include "gluon/core/printable.h"

namespace gluon::cli {
namespace {

// A character arrives in one piece unless it is printed byte by byte.
class TextBuffer : public std::streambuf {
 public:
  explicit TextBuffer(std::streambuf* out) : out_(out) {}
  std::streambuf* out() const { return out_; }

 protected:
  std::streamsize xsputn(const char* bytes, std::streamsize count) override {
    std::string_view text(bytes, static_cast<std::size_t>(count));
    std::string shown;
    while (!text.empty()) {
      const std::size_t end = std::min(text.find_first_of("\n\t"), text.size());
      shown += printable(text.substr(0, end));
      if (end < text.size()) shown += text[end];
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    const auto size = static_cast<std::streamsize>(shown.size());
    return out_->sputn(shown.data(), size) == size ? count : 0;
  }
  int overflow(int character) override {
    if (character == traits_type::eof()) return traits_type::not_eof(character);
    const char byte = traits_type::to_char_type(character);
    return xsputn(&byte, 1) == 1 ? character : traits_type::eof();
  }
  int sync() override { return out_->pubsync(); }

 private:
  std::streambuf* out_;
};

std::ostream* const kStreams[] = {&std::cout, &std::cerr, &std::clog};

}  // namespace

TextOutput::TextOutput() {
  for (std::ostream* stream : kStreams) {
    buffers_.push_back(std::make_unique<TextBuffer>(stream->rdbuf()));
    stream->rdbuf(buffers_.back().get());
  }
}

TextOutput::~TextOutput() {
  for (std::size_t i = 0; i < buffers_.size(); ++i) {
    kStreams[i]->rdbuf(dynamic_cast<const TextBuffer&>(*buffers_[i]).out());
  }
}

std::ostream& raw_output() {
  static std::ostream raw(nullptr);
  const auto* buffer = dynamic_cast<const TextBuffer*>(std::cout.rdbuf());
  raw.rdbuf(buffer == nullptr ? std::cout.rdbuf() : buffer->out());
  return raw;
}

}  // namespace gluon::cli
