#include "lab/report/layer_place.h"

#include <gtest/gtest.h>

namespace gluon::lab {
namespace {

void expect_place(const LayerPlace& place, int block, const std::string& type) {
  EXPECT_EQ(place.block, block) << type;
  EXPECT_EQ(place.type, type);
}

TEST(LayerPlace, FromNames) {
  expect_place(place_of("blocks.3.attn.q.weight"), 3, "attn.q");
  expect_place(place_of("transformer.h.11.mlp.c_fc.weight"), 11, "mlp.c_fc");
  expect_place(place_of("layers.1.norm1.bias"), 1, "norm1.bias");
  expect_place(place_of("experts.2.0.weight"), 2, "0");
  expect_place(place_of("transformer.wte.weight"), -1, "transformer.wte");
  expect_place(place_of("weight"), -1, "weight");
  expect_place(place_of("7"), -1, "7");
  expect_place(place_of(""), -1, "");
  expect_place(place_of("h.99999999999999.w"), -1, "h.99999999999999.w");
}

TEST(LayerPlace, FromNumbersOfPaperLogs) {
  expect_place(place_in_paper_log("0", 73), 0, "attn.c_q");
  expect_place(place_in_paper_log("24", 73), 4, "attn.c_q");
  expect_place(place_in_paper_log("71", 73), 11, "mlp.c_proj");
  expect_place(place_in_paper_log("72", 73), -1, "wte");
  expect_place(place_in_paper_log("5", 14), -1, "5");
}

}  // namespace
}  // namespace gluon::lab
