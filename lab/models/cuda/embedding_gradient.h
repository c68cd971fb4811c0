// The gradient of an embedding that is the head, too: that of the head, and the rows that tokens send back.
//
//   out[v] = scale head[v] + sum of gradient[t] over all t with token t = v           in float32
//
// One pass over both, which the head's factor is part of. A row's sum always has the same order: the result has the
// same bits. Bytes: 8 an entry of the embedding, 2 an entry of `gradient`. In the flow: the last of the backward pass.

#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace gluon::lab::cuda {

/// Matrices without gaps, addresses divisible by 16; width divisible by 4.
struct EmbeddingGradient {
  int tokens = 0, vocabulary = 0, width = 0;
  const int* sorted = nullptr;              // (tokens) in ascending order, and
  const int64_t* order = nullptr;           // (tokens) where each stood
  const __nv_bfloat16* gradient = nullptr;  // (tokens, width)
  const float* head = nullptr;              // (vocabulary, width)
  const float* scale = nullptr;             // one, on the device
  float* out = nullptr;                     // (vocabulary, width), may be head
  int* firsts = nullptr;                    // scratch (vocabulary + 1)
  float* sums = nullptr;                    // scratch (embedding_chunks(tokens), width)
};

/// Tokens that are everywhere, as a text's commas, are summed in chunks first.
int64_t embedding_chunks(int64_t tokens);

cudaError_t embedding_gradient(const EmbeddingGradient& work, cudaStream_t stream);

}  // namespace gluon::lab::cuda
