// Materials: the data of the paper's experiments, prepared once.
//
//   DATA/text/wikipedia.txt.xz            OUT/data/train.bin, validation.bin    GPT-2 tokens
//   DATA/text/openwebtext-sample.txt.xz   OUT/data/train.txt, validation.txt    bytes, for --small
//
// A corpus keeps the order of its source, so that its end differs in kind from its beginning: documents are shuffled
// first, and whole ones are held out for validation. The paper trains on FineWeb; which text we take instead is named in
// every result.

#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>

#include "gluon/core/check.h"
#include "lab/train/whole_run.h"

namespace gluon::lab {

/// What an experiment throws when a file of --data is not there: others may still run.
class MissingMaterial : public InputError {
 public:
  using InputError::InputError;
};

/// Thrown when a signal has stopped a run, or the preparation of data.
struct Stopped {};

struct Corpus {
  std::string train;       // for --data; empty: the project's own sources
  std::string validation;  // for --val-data
  int64_t validation_tokens = 0;
};

/// DATA/`name`. Throws MissingMaterial when there is nothing.
std::filesystem::path material(const std::filesystem::path& data, const std::string& name);

/// Writes both parts of a corpus into `folder`, unless they are there. Bytes without DATA/text are the project's own
/// sources; `announce` says so. Tokens throw MissingMaterial without the text or DATA/gpt2, and Stopped, with nothing
/// written, soon after `stop` is set.
Corpus prepare_bytes(const std::filesystem::path& data, const std::filesystem::path& folder, const Announce& announce,
                     const std::atomic<bool>& stop);
Corpus prepare_tokens(const std::filesystem::path& data, const std::filesystem::path& folder, const Announce& announce,
                      const std::atomic<bool>& stop);

}  // namespace gluon::lab
