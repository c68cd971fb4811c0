#include "gluon/core/layer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <numeric>

#include "gluon/core/check.h"
#include "gluon/core/spec.h"

namespace gluon {
namespace {

constexpr std::array<std::pair<Role, std::string_view>, 6> kRoles{{
    {Role::kHidden, "hidden"},
    {Role::kEmbedding, "embedding"},
    {Role::kHead, "head"},
    {Role::kConv, "conv"},
    {Role::kVector, "vector"},
    {Role::kScalar, "scalar"},
}};

bool is_matrix_role(Role role) { return role == Role::kHidden || role == Role::kEmbedding || role == Role::kHead; }

// Whether one of the dot-separated parts of a parameter name is one of `words`.
bool has_part(std::string_view name, std::initializer_list<std::string_view> words) {
  std::string parts = join(".", name, ".");
  std::transform(parts.begin(), parts.end(), parts.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::any_of(words.begin(), words.end(),
                     [&](std::string_view word) { return parts.find(join(".", word, ".")) != std::string::npos; });
}

struct Cut {
  int64_t dim = 0;               // -2 rows, -1 columns
  std::vector<int64_t> lengths;  // of the parts; a single 0: no cut
};

// "rows:3", "columns:64,64" ... for a layer of this shape; `what` starts the error messages.
Cut parse_cut(std::string_view split, const MatrixShape& shape, const std::string& what) {
  if (split.empty()) return {0, {0}};
  const std::string_view rule = split == "qkv" ? "rows:3" : split;
  const bool rows = rule.starts_with("rows:");
  GLUON_CHECK(rows || rule.starts_with("columns:"), what,
              ": allowed are qkv, rows:PARTS, rows:SIZE,SIZE,..., columns:PARTS, columns:SIZE,SIZE,...");
  std::vector<int64_t> lengths;
  const Spec sizes = parse_spec(join("split(", rule.substr(rule.find(':') + 1), ")"), what);
  for (const auto& size : sizes.arguments) lengths.push_back(parse_integer(size, what));
  const int64_t extent = rows ? shape.rows : shape.cols;
  const std::string_view axis = rows ? "rows" : "columns";
  if (lengths.size() == 1) {
    const int64_t parts = lengths[0];
    GLUON_CHECK(parts >= 1 && extent % parts == 0, what, ": ", extent, " ", axis, " cannot be cut into ", parts,
                " equal parts");
    lengths.assign(static_cast<std::size_t>(parts), extent / parts);
  }
  for (const int64_t length : lengths) GLUON_CHECK(length > 0, what, ": every size must be > 0, got ", length);
  const int64_t sum = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  GLUON_CHECK(sum == extent, what, ": the sizes must add up to ", extent, " ", axis, ", got ", sum);
  return {rows ? -2 : -1, std::move(lengths)};
}

// The indices of matrix number `flat` in the leading dimensions of a (..., m, n) tensor.
std::vector<int64_t> leading_indices(at::IntArrayRef sizes, int64_t flat) {
  std::vector<int64_t> indices(sizes.size() - 2);
  for (std::size_t d = indices.size(); d-- > 0;) {
    indices[d] = flat % sizes[d];
    flat /= sizes[d];
  }
  return indices;
}

}  // namespace

std::string_view role_name(Role role) {
  for (const auto& [candidate, name] : kRoles) {
    if (candidate == role) return name;
  }
  return "unknown";
}

Role parse_role(std::string_view name) {
  for (const auto& [role, candidate] : kRoles) {
    if (candidate == name) return role;
  }
  throw InputError(join("role: unknown name '", name, "'; allowed are hidden, embedding, head, conv, vector, scalar"));
}

Role infer_role(std::string_view name, at::IntArrayRef sizes) {
  if (sizes.empty()) return Role::kScalar;
  if (sizes.size() == 1) return Role::kVector;
  if (sizes.size() >= 4) return Role::kConv;
  if (has_part(name, {"embedding", "embed", "emb", "embed_tokens", "tok_embeddings", "wte", "wpe", "embeddings",
                      "token_embedding", "position_embedding"})) {
    return Role::kEmbedding;
  }
  if (has_part(name, {"head", "lm_head", "classifier", "unembed", "unembedding", "output_head", "embed_out"})) {
    return Role::kHead;
  }
  return Role::kHidden;
}

std::optional<std::size_t> find_head(std::span<const Layer> layers) {
  const auto is_tall = [](const Layer& layer) {
    return layer.parameter.dim() == 2 && layer.parameter.size(0) > layer.parameter.size(1);
  };
  int64_t vocabulary = 0;
  for (const Layer& layer : layers) {
    if (layer.role == Role::kHead) return {};
    // Positions are embedded too, but there are fewer of them than words.
    if (layer.role == Role::kEmbedding && is_tall(layer)) vocabulary = std::max(vocabulary, layer.parameter.size(0));
  }
  std::optional<std::size_t> head;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].role != Role::kHidden || !is_tall(layers[i]) || layers[i].parameter.size(0) != vocabulary) continue;
    if (head) return {};  // hidden layers that happen to have the vocabulary's size
    head = i;
  }
  return head;
}

std::string_view usual_split(const Layer& layer) {
  const at::Tensor& parameter = layer.parameter;
  const bool fused = layer.role == Role::kHidden && has_part(layer.name, {"in_proj_weight"}) && parameter.dim() == 2 &&
                     parameter.size(0) == 3 * parameter.size(1);
  return fused ? "qkv" : "";
}

MatrixShape matrix_shape(at::IntArrayRef sizes, Role role) {
  const auto entries = [&](std::size_t from, std::size_t to) {
    return std::accumulate(sizes.begin() + from, sizes.begin() + to, int64_t{1}, std::multiplies<>());
  };
  const std::size_t rank = sizes.size();
  if (is_matrix_role(role)) {
    GLUON_CHECK(rank >= 2, "layer: a ", role_name(role), " layer is a matrix (..., m, n), got ", sizes);
    return {entries(0, rank - 2), sizes[rank - 2], sizes[rank - 1], 1};
  }
  if (role == Role::kConv) {
    GLUON_CHECK(rank >= 3 && rank <= 5, "layer: a conv layer is (out, in, k1[, k2[, k3]]), got ", sizes);
    return {1, sizes[0], entries(1, rank), entries(2, rank)};
  }
  GLUON_CHECK(role == Role::kVector || entries(0, rank) == 1, "layer: a scalar layer has one entry, got ", sizes);
  return {1, entries(0, rank), 1, 1};
}

at::Tensor as_matrices(const at::Tensor& tensor, Role role) {
  const MatrixShape shape = matrix_shape(tensor.sizes(), role);
  return tensor.reshape({shape.batch, shape.rows, shape.cols});
}

at::Tensor Block::of(const at::Tensor& tensor) const {
  at::Tensor view = tensor;
  for (const int64_t index : leading) view = view.select(0, index);
  return length == 0 ? view : view.narrow(dim, start, length);
}

at::Tensor stacked_block(const at::Tensor& stack, std::size_t index, at::IntArrayRef sizes) {
  return stack.select(0, static_cast<int64_t>(index)).view(sizes);
}

std::vector<Block> split_blocks(const Layer& layer, std::string_view split) {
  const std::string what = join("split '", split, "' of layer '", layer.name, "'");
  GLUON_CHECK(split.empty() || is_matrix_role(layer.role), what, ": only matrix layers can be split, this one is ",
              role_name(layer.role));
  const at::IntArrayRef sizes = layer.parameter.sizes();
  const MatrixShape whole = matrix_shape(sizes, layer.role);
  const Cut cut = parse_cut(split, whole, what);
  const bool several = whole.batch * static_cast<int64_t>(cut.lengths.size()) > 1;

  std::vector<Block> blocks;
  for (int64_t matrix = 0; matrix < whole.batch; ++matrix) {
    int64_t start = 0;
    for (const int64_t length : cut.lengths) {
      Block block{layer.name, layer, whole, {}, cut.dim, start, length};
      start += length;
      block.shape.batch = 1;
      if (several) block.name += join("[", blocks.size(), "]");
      if (is_matrix_role(layer.role)) block.leading = leading_indices(sizes, matrix);
      if (cut.dim == -2) block.shape.rows = length;
      if (cut.dim == -1) block.shape.cols = length;
      blocks.push_back(std::move(block));
    }
  }
  return blocks;
}

}  // namespace gluon
