#include "gluon/core/layer.h"

#include <ATen/ATen.h>

#include "tests/expect_error.h"

namespace gluon {
namespace {

Layer layer(const at::Tensor& parameter, Role role) { return {"w", parameter, role}; }

TEST(Layer, MatrixShapeFollowsTheFlatteningRule) {
  EXPECT_EQ(matrix_shape({16, 8, 3, 3}, Role::kConv), (MatrixShape{1, 16, 72, 9}));
  EXPECT_EQ(matrix_shape({16, 8, 5}, Role::kConv), (MatrixShape{1, 16, 40, 5}));
  EXPECT_EQ(matrix_shape({16, 8, 2, 3, 4}, Role::kConv), (MatrixShape{1, 16, 192, 24}));
  EXPECT_EQ(matrix_shape({32, 64}, Role::kHidden), (MatrixShape{1, 32, 64, 1}));
  EXPECT_EQ(matrix_shape({4, 32, 64}, Role::kHidden), (MatrixShape{4, 32, 64, 1}));
  EXPECT_EQ(matrix_shape({2, 4, 32, 64}, Role::kHead), (MatrixShape{8, 32, 64, 1}));
  EXPECT_EQ(matrix_shape({7}, Role::kVector), (MatrixShape{1, 7, 1, 1}));
  EXPECT_EQ(matrix_shape({3, 4, 5}, Role::kVector), (MatrixShape{1, 60, 1, 1}));
  EXPECT_EQ(matrix_shape({}, Role::kScalar), (MatrixShape{1, 1, 1, 1}));
}

TEST(Layer, MatricesKeepTheEntriesInOrderAndReshapeBack) {
  for (const auto& [sizes, role] : std::vector<std::pair<std::vector<int64_t>, Role>>{
           {{4, 3, 2, 2}, Role::kConv}, {{5, 4, 3}, Role::kHidden}, {{6}, Role::kVector}, {{}, Role::kScalar}}) {
    const at::Tensor tensor = at::randn(sizes);
    const at::Tensor matrices = as_matrices(tensor, role);
    EXPECT_EQ(matrices.dim(), 3);
    EXPECT_TRUE(matrices.flatten().equal(tensor.flatten()));
    EXPECT_TRUE(matrices.reshape(tensor.sizes()).equal(tensor));
  }
}

TEST(Layer, ImpossibleShapesAreRejected) {
  EXPECT_INPUT_ERROR(matrix_shape({7}, Role::kHidden), "a hidden layer is a matrix (..., m, n), got [7]");
  EXPECT_INPUT_ERROR(matrix_shape({7, 3}, Role::kConv), "a conv layer is (out, in, k1[, k2[, k3]]), got [7, 3]");
  EXPECT_INPUT_ERROR(matrix_shape({7}, Role::kScalar), "a scalar layer has one entry, got [7]");
}

TEST(Layer, RolesFromNamesAndRanks) {
  EXPECT_EQ(infer_role("transformer.wte.weight", {50304, 768}), Role::kEmbedding);
  EXPECT_EQ(infer_role("model.embed_tokens.weight", {32000, 64}), Role::kEmbedding);
  EXPECT_EQ(infer_role("lm_head.weight", {32000, 64}), Role::kHead);
  EXPECT_EQ(infer_role("model.layers.0.self_attn.q_proj.weight", {64, 64}), Role::kHidden);
  // A hint must be a whole word: "forehead" is not a head.
  EXPECT_EQ(infer_role("forehead.weight", {64, 64}), Role::kHidden);
  EXPECT_EQ(infer_role("conv1.weight", {64, 3, 3, 3}), Role::kConv);
  EXPECT_EQ(infer_role("experts.w1", {8, 64, 64}), Role::kHidden);
  EXPECT_EQ(infer_role("head.bias", {10}), Role::kVector);
  EXPECT_EQ(infer_role("temperature", {}), Role::kScalar);
}

TEST(Layer, AHeadIsFoundByItsShape) {
  const auto matrix = [](std::string name, int64_t m, int64_t n, Role role = Role::kHidden) {
    return Layer{std::move(name), at::zeros({m, n}), role};
  };
  std::vector<Layer> layers{matrix("words.weight", 50, 8, Role::kEmbedding),
                            matrix("positions.weight", 16, 8, Role::kEmbedding), matrix("up.weight", 16, 8),
                            matrix("down.weight", 8, 50), matrix("out.weight", 50, 12)};
  EXPECT_EQ(find_head(layers), 4);
  layers.push_back(matrix("other.weight", 50, 8));
  EXPECT_EQ(find_head(layers), std::nullopt);  // either may be the head
  layers.back().role = Role::kHead;
  EXPECT_EQ(find_head(layers), std::nullopt);  // it has one
  EXPECT_EQ(find_head(std::span(layers).subspan(1, 2)), 1);
  // A table with as many columns as rows is no vocabulary: every square layer would be a head.
  EXPECT_EQ(find_head(std::vector{matrix("wpe", 8, 8, Role::kEmbedding), matrix("q", 8, 8)}), std::nullopt);
  EXPECT_EQ(find_head(std::vector{matrix("up.weight", 16, 8)}), std::nullopt);
}

TEST(Layer, FusedProjectionsOfTorchAreSplit) {
  EXPECT_EQ(usual_split({"attn.in_proj_weight", at::zeros({24, 8})}), "qkv");
  EXPECT_EQ(usual_split({"in_proj_weight", at::zeros({24, 8})}), "qkv");
  EXPECT_EQ(usual_split({"attn.in_proj_weight", at::zeros({16, 8})}), "");
  EXPECT_EQ(usual_split({"mixer.in_proj.weight", at::zeros({24, 8})}), "");
  EXPECT_EQ(usual_split({"attn.in_proj_weight", at::zeros({24, 8}), Role::kHead}), "");
}

TEST(Layer, RoleNamesParseBack) {
  for (const Role role : {Role::kHidden, Role::kEmbedding, Role::kHead, Role::kConv, Role::kVector, Role::kScalar}) {
    EXPECT_EQ(parse_role(role_name(role)), role);
  }
  EXPECT_INPUT_ERROR(parse_role("attention"),
                     "unknown name 'attention'; allowed are hidden, embedding, head, conv, vector, scalar");
}

TEST(Blocks, WithoutSplitALayerIsOneBlockPerMatrix) {
  const at::Tensor weight = at::randn({16, 8, 3, 5});
  const auto conv = split_blocks(layer(weight, Role::kConv), "");
  ASSERT_EQ(conv.size(), 1);
  EXPECT_EQ(conv[0].name, "w");
  EXPECT_TRUE(conv[0].of(weight).is_same(weight));
  const auto experts = split_blocks(layer(weight, Role::kHidden), "");
  ASSERT_EQ(experts.size(), 16 * 8);
  EXPECT_EQ(experts[12].name, "w[12]");
  EXPECT_EQ(experts[12].shape, (MatrixShape{1, 3, 5, 1}));
  EXPECT_TRUE(experts[12].of(weight).equal(weight[1][4]));
}

TEST(Blocks, RowsColumnsAndSizes) {
  const at::Tensor weight = at::randn({12, 8});
  struct Case {
    const char* split;
    std::size_t parts, part;
    MatrixShape shape;
    at::Tensor entries;
  };
  for (const Case& c : {Case{"qkv", 3, 2, {1, 4, 8, 1}, weight.slice(0, 8, 12)},
                        {"rows:8,2,2", 3, 1, {1, 2, 8, 1}, weight.slice(0, 8, 10)},
                        {"columns:4", 4, 3, {1, 12, 2, 1}, weight.slice(1, 6, 8)}}) {
    const auto blocks = split_blocks(layer(weight, Role::kHidden), c.split);
    ASSERT_EQ(blocks.size(), c.parts) << c.split;
    EXPECT_EQ(blocks[c.part].shape, c.shape) << c.split;
    EXPECT_TRUE(blocks[c.part].of(weight).equal(c.entries)) << c.split;
  }
}

TEST(Blocks, EveryEntryBelongsToExactlyOneBlock) {
  const at::Tensor weight = at::zeros({2, 12, 8});
  for (const char* split : {"", "qkv", "rows:8,2,2", "columns:4", "columns:5,3"}) {
    weight.zero_();
    for (const Block& block : split_blocks(layer(weight, Role::kHidden), split)) block.of(weight).add_(1);
    EXPECT_TRUE(weight.eq(1).all().item<bool>()) << split;
  }
}

TEST(Blocks, SplitsThatDoNotFitAreRejected) {
  const Layer matrix = layer(at::randn({10, 8}), Role::kHidden);
  EXPECT_INPUT_ERROR(split_blocks(matrix, "qkv"), "split 'qkv' of layer 'w': 10 rows cannot be cut into 3 equal parts");
  EXPECT_INPUT_ERROR(split_blocks(matrix, "rows:5,4"), "the sizes must add up to 10 rows, got 9");
  EXPECT_INPUT_ERROR(split_blocks(matrix, "rows:12,-2"), "every size must be > 0, got -2");
  EXPECT_INPUT_ERROR(split_blocks(matrix, "heads"), "allowed are qkv, rows:PARTS");
  EXPECT_INPUT_ERROR(split_blocks(layer(at::randn({8}), Role::kVector), "rows:2"),
                     "only matrix layers can be split, this one is vector");
}

}  // namespace
}  // namespace gluon
