// Every example of a batch belongs to one part, every part to one rank, and parts do not depend on the ranks.

#include "lab/train/rank_share.h"

#include <ATen/ATen.h>

#include "lab/train/config.h"
#include "tests/expect_error.h"

namespace gluon::lab {
namespace {

// A rank whose exchanges are never used.
class Silent : public Collective {
 public:
  Silent(int rank, int size) : rank_(rank), size_(size) {}
  std::string_view name() const override { return "silent"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  ExchangePtr all_reduce(at::Tensor) override { throw std::logic_error("silent"); }
  ExchangePtr reduce(at::Tensor, int) override { throw std::logic_error("silent"); }
  ExchangePtr broadcast(at::Tensor, int) override { throw std::logic_error("silent"); }

 private:
  int rank_;
  int size_;
};

using Parts = std::vector<std::vector<int64_t>>;

// The examples of each part, over all ranks in turn.
Parts parts_of_all(int64_t examples, int ranks, int64_t parts) {
  const at::Tensor numbers = at::arange(examples);
  Parts all;
  for (int rank = 0; rank < ranks; ++rank) {
    const RankShare share(std::make_shared<Silent>(rank, ranks), parts);
    const Batch mine = share.of({numbers, numbers});
    for (const Batch& part : share.parts(mine, examples)) {
      EXPECT_TRUE(part.inputs.equal(part.targets));
      all.emplace_back(part.inputs.data_ptr<int64_t>(), part.inputs.data_ptr<int64_t>() + part.inputs.numel());
    }
  }
  return all;
}

TEST(RankShare, EveryExampleIsInExactlyOnePart) {
  for (const int64_t examples : {1, 5, 16, 33}) {
    for (const int ranks : {1, 2, 3, 7, 12}) {
      for (const int64_t parts : {int64_t{1}, int64_t{12}, common_parts(ranks)}) {
        std::vector<int64_t> seen;
        for (const auto& part : parts_of_all(examples, ranks, parts)) {
          seen.insert(seen.end(), part.begin(), part.end());
        }
        std::vector<int64_t> expected(static_cast<std::size_t>(examples));
        for (int64_t i = 0; i < examples; ++i) expected[static_cast<std::size_t>(i)] = i;
        EXPECT_EQ(seen, expected) << examples << " examples, " << ranks << " ranks, " << parts << " parts";
      }
    }
  }
}

TEST(RankShare, PartsAreTheSameForAnyNumberOfRanks) {
  for (const int64_t examples : {4, 16, 50}) {
    const Parts alone = parts_of_all(examples, 1, 12);
    for (const int ranks : {2, 3, 4, 5, 6, 7, 12}) EXPECT_EQ(parts_of_all(examples, ranks, 12), alone) << ranks;
  }
  EXPECT_EQ(parts_of_all(16, 1, 1).size(), 1);
  EXPECT_EQ(parts_of_all(16, 3, 1).size(), 3);
}

TEST(RankShare, FewerPartsThanRanksAreRejected) {
  EXPECT_INPUT_ERROR(RankShare(std::make_shared<Silent>(0, 5), 4), "--parts 4 must be 1 or at least the 5 ranks");
}

TEST(CommonParts, AreTwelveForDivisorsOfTwelve) {
  for (const int ranks : {1, 2, 3, 4, 6, 12}) EXPECT_EQ(common_parts(ranks), 12);
  EXPECT_EQ(common_parts(5), 15);
  EXPECT_EQ(common_parts(64), 64);
}

TEST(CommonParts, AreTheDefaultForRanksOnTheCpu) {
  TrainConfig config;
  EXPECT_EQ(config.parts_for(0), 1);
  EXPECT_EQ(config.parts_for(1), 12);
  config.device = "cuda";
  EXPECT_EQ(config.parts_for(4), 1);
  config.device = "cpu";
  config.model = "cifar-cnn";
  EXPECT_EQ(config.parts_for(4), 1);
  config.parts = 8;
  EXPECT_EQ(config.parts_for(4), 8);
  config.parts = -1;
  EXPECT_INPUT_ERROR(config.validate(), "--parts must be in 0..65536, got -1");
}

}  // namespace
}  // namespace gluon::lab
