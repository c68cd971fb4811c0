// The gradient of an embedding that is also the head: the sum of the gradients of both.
//
//   out[v] = scale head[v] + sum of gradient[t] over all t with token t = v           in float32
//
// One pass adds both and applies the head's factor. Each row is summed in a fixed order, so the result has the same
// bits every time. A token outside the vocabulary has no row; it makes row 0 NaN, so that no optimizer takes a step
// without it. Bytes: 8 per entry of the embedding, 2 per entry of `gradient`. In the flow: the last operation of the
// backward pass.

#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace gluon::lab::cuda {

/// Contiguous matrices, addresses divisible by 16; width divisible by 4.
struct EmbeddingGradient {
  int tokens = 0, vocabulary = 0, width = 0;
  const int* sorted = nullptr;              // (tokens), ascending
  const int64_t* order = nullptr;           // (tokens), the position of each before sorting
  const __nv_bfloat16* gradient = nullptr;  // (tokens, width)
  const float* head = nullptr;              // (vocabulary, width)
  const float* scale = nullptr;             // one value on the device
  float* out = nullptr;                     // (vocabulary, width), may be head
  int* firsts = nullptr;                    // scratch (vocabulary + 1)
  float* sums = nullptr;                    // scratch (embedding_chunks(tokens), width)
};

/// Chunks of tokens that are summed first, for the sake of frequent tokens such as commas.
int64_t embedding_chunks(int64_t tokens);

cudaError_t embedding_gradient(const EmbeddingGradient& work, cudaStream_t stream);

}  // namespace gluon::lab::cuda
