// The memory that a model needs, compared with what there is before anything is allocated.
//
//   parameters, momentum (two moments under AdamW), gradients in training: 4 bytes each per entry

#pragma once

#include <cstdint>

#include "lab/train/config.h"

namespace gluon::lab {

/// Bytes that the config's language model with this vocabulary takes at least; `trains`: with its gradients. Saturates
/// at the largest int64.
int64_t needed_memory(const TrainConfig& config, int64_t vocabulary, bool trains);

/// Bytes that this process may use: the machine's memory with its swap space, less where a control group or
/// RLIMIT_AS (ulimit -v) allows less.
int64_t available_memory();

/// Throws InputError with both numbers when the model does not fit.
void check_memory(const TrainConfig& config, int64_t vocabulary, bool trains);

}  // namespace gluon::lab
