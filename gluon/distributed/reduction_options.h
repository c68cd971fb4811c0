// ReductionOptions: how the gradients of several ranks become one.

#pragma once

#include <cstdint>

namespace gluon {

struct ReductionOptions {
  bool mean = true;  // over the ranks; false: their sum

  /// Add in float64, also the batches that one rank adds up: after rounding to float32 the result then hardly ever
  /// depends on the order of the terms, so on the number of ranks.
  bool exact = false;

  int64_t bucket_bytes = int64_t{25} << 20;  // of gradients that are sent together

  /// Throws InputError naming the option, its value and what is allowed.
  void validate() const;
};

}  // namespace gluon
