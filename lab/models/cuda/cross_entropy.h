// Cross-entropy over bfloat16 logits, which are replaced by their gradient: float32 logits never exist.
//
//   loss_i     = log(sum_j exp(x_ij)) - x_i,label_i                    float32, one value per row (token)
//   x_ij      <- (exp(x_ij - log sum) - [j = label_i]) scale           rounded to bfloat16, in place
//
// A row is read once and written once, 4 bytes per entry: a bulk copy brings it to shared memory during the work on the
// previous row, and it stays in registers from the maximum to the gradient. This holds on Hopper for vocabularies
// divisible by 8 up to 51200; others take a plain path that reads twice. In the flow: the trainer's loss, after the
// head's product.

#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace gluon::lab::cuda {

struct CrossEntropy {
  int64_t rows = 0;
  int64_t vocabulary = 0;
  __nv_bfloat16* logits = nullptr;  // (rows, vocabulary)
  const int64_t* labels = nullptr;  // (rows); one outside the vocabulary makes its row's loss and gradient NaN
  float* losses = nullptr;          // (rows)
  float scale = 1;                  // of the gradient: 1 / rows for the mean loss
  bool gradient = true;             // false: the logits are only read
};

/// cudaErrorInvalidValue for missing pointers, negative rows and an empty vocabulary; cudaErrorNotSupported unless the
/// current device has compute capability 9.0.
cudaError_t cross_entropy(const CrossEntropy& arguments, cudaStream_t stream);

}  // namespace gluon::lab::cuda
