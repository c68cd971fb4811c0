#include "lab/train/radius_flag.h"

#include <gtest/gtest.h>

#include "gluon/geometry/presets.h"
#include "lab/train/config.h"
#include "lab/train/effect.h"
#include "tests/expect_error.h"

namespace gluon::lab {
namespace {

std::vector<Layer> language_model() {
  return {{"h.0.weight", at::zeros({2, 2}), Role::kHidden},
          {"h.1.weight", at::zeros({2, 2}), Role::kHidden},
          {"wte.weight", at::zeros({4, 2}), Role::kEmbedding},
          {"bias", at::zeros({2}), Role::kVector}};
}

TrainConfig with(const std::string& preset, const std::string& radius) {
  TrainConfig config;
  config.preset = preset;
  config.radius = radius;
  return config;
}

// The radius of every layer of language_model(), by name.
std::vector<std::string> radii(const std::string& preset, const std::string& radius) {
  const TrainConfig config = with(preset, radius);
  config.validate();
  const std::vector<Layer> layers = language_model();
  check_radius_effect(config, layers);
  const Geometry geometry = config.geometry();
  std::vector<std::string> names;
  for (const std::size_t rule : geometry.assign(layers)) names.push_back(geometry.rules()[rule].radius->name());
  return names;
}

using Names = std::vector<std::string>;

TEST(RadiusFlag, NumbersAreForThePresetsKeys) {
  EXPECT_EQ(parse_radii("a=1,b=0.25,c=power(1),x.*=3"), (std::map<std::string, double>{{"a", 1}, {"b", 0.25}}));
  EXPECT_TRUE(parse_radii("").empty());
  EXPECT_TRUE(radius_entries("auto").empty());
  EXPECT_EQ(radii("unscion", "hidden=0.5,embedding=2,vector=3"), (Names{"0.5", "0.5", "2", "3"}));
}

TEST(RadiusFlag, RulesAreForRolesOrAllOfThem) {
  EXPECT_EQ(radii("unscion", "hidden=power(0.02)"), (Names{"power(0.02)", "power(0.02)", "1.08", "0.018"}));
  EXPECT_EQ(radii("unscion", "embedding=relative_noise(1,2,0.5),hidden=3,vector=smooth(0,1)"),
            (Names{"3", "3", "relative_noise(1,2,0.5)", "smooth(0,1)"}));
  EXPECT_EQ(radii("sign_descent", "all=power(1)"), Names(4, "power(1)"));
  EXPECT_EQ(radii("muon", "hidden=power(1),adamw=0.5"), (Names{"power(1)", "power(1)", "0.5", "0.5"}));
  EXPECT_EQ(radii("deterministic_gluon", "L1=7,hidden=smooth(0,3)"),
            (Names{"smooth(0,3)", "smooth(0,3)", "smooth(0,7)", "smooth(0,7)"}));
}

TEST(RadiusFlag, NumbersOfSgdAreLearningRates) {
  EXPECT_EQ(radii("sgd", "all=0.5"), Names(4, "steepest(0.5)"));
  EXPECT_EQ(radii("sgd", "h.0.*=0.25,bias*=power(1)"),
            (Names{"steepest(0.25)", "steepest(0.1)", "steepest(0.1)", "power(1)"}));
  EXPECT_EQ(radii("unscion", "hidden=steepest(0.25)"), (Names{"steepest(0.25)", "steepest(0.25)", "1.08", "0.018"}));
}

TEST(RadiusFlag, LayersByNameComeBeforeRolesAndTheFirstDecides) {
  EXPECT_EQ(radii("unscion", "h.0.*=0.5"), (Names{"0.5", "0.018", "1.08", "0.018"}));
  EXPECT_EQ(radii("unscion", "vector=power(2),h.1.weight=5,*.weight=smooth(1,0)"),
            (Names{"smooth(1,0)", "5", "smooth(1,0)", "power(2)"}));
  EXPECT_EQ(radii("unscion", "hidden=power(2),h.1.weight=5,b?as=1"), (Names{"power(2)", "5", "1.08", "1"}));
}

TEST(RadiusFlag, LayersWithRulesStayOnTheirSpheres) {
  EXPECT_EQ(radii("sphere", "h.0.*=0.5,hidden=power(0.25),factor=2"),
            (Names{"0.5", "power(0.25)", "0.7", "horizon(0.9,0.4,400)"}));
  const Geometry geometry = with("sphere", "h.0.*=0.5").geometry();
  for (const std::size_t rule : geometry.assign(std::vector<Layer>{language_model()[0], language_model()[1]})) {
    EXPECT_TRUE(geometry.rules()[rule].sphere.has_value());
  }
}

TEST(RadiusFlag, NormsAndDecaysRemain) {
  TrainConfig config = with("unscion", "h.0.*=power(1)");
  config.weight_decay = 0.25;
  const Geometry geometry = config.geometry();
  const std::vector<Layer> layers = language_model();
  const std::vector<std::size_t> before = presets::unscion().assign(layers), after = geometry.assign(layers);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    EXPECT_EQ(geometry.rules()[after[i]].norm.name(), presets::unscion().rules()[before[i]].norm.name());
    EXPECT_EQ(geometry.rules()[after[i]].decay.constant(), 0.25);
  }
}

TEST(RadiusFlag, BadInput) {
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {"unscion", "hidden", "--radius: expected group=radius,..., got 'hidden'"},
      {"unscion", "hidden=1,=2", "--radius: expected group=radius,..."},
      {"unscion", "hidden=1,hidden=power(2)", "--radius: group 'hidden' is given twice"},
      {"unscion", "hidden=", "--radius: expected group=radius,..., got 'hidden='"},
      {"unscion", "hidden=1,", "--radius: expected group=radius,..., got 'hidden=1,'"},
      {"unscion", ",", "--radius: expected group=radius,..., got ','"},
      {"unscion", "hidden=power(0.02", "--radius hidden"},
      {"unscion", "hidden=power(x)", "--radius hidden: expected a number, got 'x'"},
      {"unscion", "hidden=power(1,2)", "unknown rule 'power(1,2)'; allowed are a number, power(T), smooth(L0,L1)"},
      {"sgd", "hidden=1", "preset sgd: unknown radius 'hidden'; allowed are all"},
      {"sgd", "h.0.*=x", "--radius h.0.*: expected a number, got 'x'"},
      {"unscion", "hidden=power(-1)", "--radius hidden must be in"},
      {"unscion", "hidden=smooth(0,0)", "L0 and L1 must be >= 0 and not both 0"},
      {"unscion", "untied_embedding=power(1)",
       "--radius untied_embedding: expected a number, got 'power(1)'; rules are"},
      {"unscion", "all=1", "preset unscion: unknown radius 'all'"},
      {"unscion", "heads.*=1,x.*=2", "the pattern 'heads.*' of a rule matches no layer"},
      {"unscion", "conv=power(1)", "--radius conv=power(1) has no effect: nanogpt-tiny has no layers that preset"},
      {"unscion", "*.weight=power(1),h.0.*=2", "--radius h.0.*=2 has no effect"},
      {"scion", "hidden=power(1)", "the radii of preset scion are those of its balls"},
  };
  for (const auto& [preset, radius, message] : cases) {
    SCOPED_TRACE(radius);
    EXPECT_INPUT_ERROR(radii(preset, radius), message);
  }
}

}  // namespace
}  // namespace gluon::lab
