// Layer: one parameter with a name and a role, and the one rule that says which matrices it is made of.
//
// Every parameter is a batch of b matrices (m, n). The rule, used by everything that needs a shape:
//
//   role               parameter                matrices (b, m, n)         kernel
//   hidden, embedding, (..., m, n)              (product of ..., m, n)     1
//   head
//   conv               (out, in, k1[, k2, k3])  (1, out, in k1 k2 k3)      k1 k2 k3
//   vector             (C) or any shape         (1, number of entries, 1)  1
//   scalar             one entry                (1, 1, 1)                  1
//
// Leading dimensions of a matrix role are a batch (experts). The entries keep their row-major order, so the
// inverse of the view is a reshape to the parameter's sizes.
//
// A Block is what the optimizer works on: one matrix; a whole layer, one expert of a stack, or the part of a
// fused layer that is a matrix of its own (the query rows of a qkv weight, one head).

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gluon {

enum class Role { kHidden, kEmbedding, kHead, kConv, kVector, kScalar };

/// "hidden", "embedding", "head", "conv", "vector" or "scalar".
std::string_view role_name(Role role);

/// Inverse of role_name(). Throws InputError that lists the names.
Role parse_role(std::string_view name);

/// The role a parameter most likely has, from its name and rank alone: scalar for one entry of rank 0, vector
/// for rank <= 1, embedding and head by the words people use for them, conv for rank 4 and 5, hidden otherwise.
/// A rank 3 tensor counts as a stack of matrices; say Role::kConv for a one-dimensional convolution.
Role infer_role(std::string_view name, at::IntArrayRef sizes);

struct Layer {
  std::string name;
  at::Tensor parameter;
  Role role = Role::kHidden;
  int64_t group = 0;  // layers of one group share a radius multiplier, as in torch's parameter groups
};

/// The index of the layer that is the head by its shape: the only hidden matrix with as many rows as the largest
/// vocabulary, the embedding with the most rows, where both have more rows than columns. Nothing beside a layer that
/// already is a head. Names such as "out" or "decoder" do not tell a head; its shape does.
std::optional<std::size_t> find_head(std::span<const Layer> layers);

/// The split of a layer whose rule names none: "qkv" for torch's MultiheadAttention, whose in_proj_weight (3 n, n) is
/// three matrices, and no cut for all others. A rule's split "rows:1" keeps it whole.
std::string_view usual_split(const Layer& layer);

/// The matrices of a parameter, see the table above.
struct MatrixShape {
  int64_t batch = 1;
  int64_t rows = 1;    // m
  int64_t cols = 1;    // n
  int64_t kernel = 1;  // taps of a convolution, 1 elsewhere

  bool operator==(const MatrixShape&) const = default;
};

/// The flattening rule. Throws InputError when a role cannot have such sizes.
MatrixShape matrix_shape(at::IntArrayRef sizes, Role role);

/// `tensor`, shaped as the parameter of a layer with this role, as its matrices (b, m, n); a view where the
/// memory allows one. The inverse is `matrices.reshape(tensor.sizes())`.
at::Tensor as_matrices(const at::Tensor& tensor, Role role);

/// One matrix of a layer.
struct Block {
  std::string name;  // the layer's, with the place in brackets when the layer has several: "moe.w1[3]"
  Layer layer;
  MatrixShape shape;             // of this matrix: batch is 1
  std::vector<int64_t> leading;  // indices into the leading (batch) dimensions of the parameter
  int64_t dim = 0;               // then the slice [start, start + length) along dim -2 or -1;
  int64_t start = 0;
  int64_t length = 0;  // 0: no slice

  /// The block's entries of the parameter, or of any tensor with the parameter's sizes: always a view.
  at::Tensor of(const at::Tensor& tensor) const;
};

/// Matrix `index` of a stack (c, m, n), viewed with the sizes of its block of the parameter.
at::Tensor stacked_block(const at::Tensor& stack, std::size_t index, at::IntArrayRef sizes);

/// Cuts a layer into its matrices: one per index of the leading dimensions, times one per part of `split`:
///
///   ""                      no cut
///   "qkv"                   the same as rows:3
///   "rows:3"                3 equal row blocks (m divisible by 3)
///   "rows:2048,512,512"     row blocks of these sizes, which add up to m
///   "columns:12"            12 equal column blocks; sizes work here too
///
/// Throws InputError that names the layer when the split does not fit it.
std::vector<Block> split_blocks(const Layer& layer, std::string_view split);

}  // namespace gluon
