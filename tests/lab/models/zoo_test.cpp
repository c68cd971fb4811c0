#include "lab/models/zoo.h"

#include "lab/models/cifar_cnn.h"
#include "lab/models/nanogpt.h"
#include "tests/expect_error.h"

namespace gluon::lab {
namespace {

TEST(Zoo, NamesMakeModels) {
  EXPECT_TRUE(is_language_model("nanogpt-124m"));
  EXPECT_TRUE(is_language_model("nanogpt-tiny"));
  EXPECT_FALSE(is_language_model("cifar-cnn"));
  const auto tiny = std::dynamic_pointer_cast<NanoGpt>(make_model("nanogpt-tiny"));
  ASSERT_NE(tiny, nullptr);
  EXPECT_EQ(tiny->options().vocabulary, 256);
  EXPECT_NE(std::dynamic_pointer_cast<CifarCnn>(make_model("cifar-cnn")), nullptr);
}

TEST(Zoo, OverridesAndSeedReachTheModel) {
  const ModelOverrides overrides{.vocabulary = 20, .context = 9, .layers = 1, .width = 24, .heads = 3};
  const auto model = std::dynamic_pointer_cast<NanoGpt>(make_model("nanogpt-124m", overrides, 4));
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(model->options().vocabulary, 20);
  EXPECT_EQ(model->options().context, 9);
  EXPECT_EQ(model->options().layers, 1);
  EXPECT_EQ(model->options().width, 24);
  EXPECT_EQ(model->options().heads, 3);
  EXPECT_TRUE(model->parameters()[0].equal(NanoGpt(model->options(), 4).parameters()[0]));
  EXPECT_TRUE(make_model("cifar-cnn", {}, 4)->parameters()[0].equal(CifarCnn({}, 4).parameters()[0]));
}

TEST(Zoo, ErrorsSayWhatWasReceived) {
  const char* names = "model: unknown name 'resnet'; allowed are nanogpt-124m, nanogpt-tiny, cifar-cnn";
  EXPECT_INPUT_ERROR(make_model("resnet"), names);
  EXPECT_INPUT_ERROR(is_language_model("resnet"), names);
  EXPECT_INPUT_ERROR(make_model("nanogpt-tiny", {.heads = 7}), "heads must divide width, got 7 heads and width 128");
  EXPECT_INPUT_ERROR(make_model("cifar-cnn", {.qk_norm = false}),
                     "model cifar-cnn: has no queries and keys to leave without norm");
  EXPECT_INPUT_ERROR(make_model("cifar-cnn", {.vocabulary = 5}), "model cifar-cnn: has no vocabulary, got 5");
  EXPECT_INPUT_ERROR(make_model("cifar-cnn", {.context = 5}), "model cifar-cnn: has no context, got 5");
  EXPECT_INPUT_ERROR(make_model("cifar-cnn", {.layers = 5}), "model cifar-cnn: has no layers, got 5");
  EXPECT_INPUT_ERROR(make_model("cifar-cnn", {.width = 5}), "model cifar-cnn: has no width, got 5");
  EXPECT_INPUT_ERROR(make_model("cifar-cnn", {.heads = 5}), "model cifar-cnn: has no heads, got 5");
}

}  // namespace
}  // namespace gluon::lab
