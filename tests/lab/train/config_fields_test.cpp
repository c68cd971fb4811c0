#include "lab/train/config_fields.h"

#include <limits>

#include "lab/train/run_directory.h"
#include "tests/expect_error.h"
#include "tests/temporary_folder.h"

namespace gluon::lab {
namespace {

TrainConfig parsed(const std::string& text, const std::set<std::string>& keep = {}) {
  TrainConfig config;
  parse_config_toml(text, "file", config, keep);
  return config;
}

TEST(ConfigToml, TheDefaultsAreTheDocumentedText) {
  EXPECT_EQ(config_toml(TrainConfig{}),
            "model=\"nanogpt-tiny\"\nlayers=0\nwidth=0\nheads=0\nseq=0\nvocabulary=0\nqk-norm=1\n"
            "data=\"\"\nvocab=\"\"\nval-data=\"\"\nval-tokens=0\ntrain-images=0\ntest-images=0\nbatch=16\naccumulate="
            "1\nfull-batch="
            "false\nparts=0\n"
            "preset=\"unscion\"\nradius=\"\"\nlr=0\nweight-decay=-1\ndecay=\"\"\nnormalize=\"\"\nmomentum="
            "\"\"\nschedule=\"\"\n"
            "orthogonalizer=\"\"\nclip=1\nqk-clip=-1\nlabel-smoothing=-1\n"
            "steps=400\nseed=0\ndevice=\"cpu\"\nprecision=\"\"\ncuda-graph=1\ndeterministic=false\n"
            "eval-every=50\nsave-every=200\non-nan=\"error\"\nnan-limit=10\n"
            "smoothness-every=0\nsmoothness-start=0\nsmoothness-mode=\"\"\nsmoothness-geometry=\"\"\nsmoothness-dual="
            "\"auto\"\n");
}

TEST(ConfigToml, EveryFieldReadsBack) {
  TrainConfig config;
  for (const ConfigField& field : config_fields()) {
    const bool is_text = std::holds_alternative<std::string TrainConfig::*>(field.member);
    const std::string standard = value_text(config, field);
    const std::string value = is_text               ? std::string("of ") + field.name
                              : standard == "1"     ? "0"
                              : standard == "false" ? "true"
                                                    : "7";
    set_value(config, field, value, "test");
    EXPECT_EQ(value_text(config, field), value) << field.name;
    EXPECT_EQ(value_text(parsed(config_toml(config)), field), value) << field.name;
  }
}

TEST(ConfigToml, AnyPathSurvives) {
  for (const std::string path :
       {"a#b", "a \"b\" 'c'", "it's", "tab\tbreak\nreturn\r", "back\\slash\\n", "\x01\x1f\x7f", "[a, b] = c",
        " blanks ", "5", "true", "gr\u00fc\u00dfe/\u6570\u636e", "\"", "'", "#"}) {
    TrainConfig config;
    config.data = path;
    config.steps = 7;
    const TrainConfig read = parsed(config_toml(config));
    EXPECT_EQ(read.data, path);
    EXPECT_EQ(read.steps, 7);
    EXPECT_EQ(config_toml(read), config_toml(config));
  }
}

TEST(ConfigToml, NumbersKeepAllTheirDigits) {
  TrainConfig config;
  config.seed = std::numeric_limits<uint64_t>::max();
  config.layers = std::numeric_limits<int64_t>::min();
  for (const double value : {0.1, 0.1 + 0.2, 1e-5, 123456.0, 1234567.0, 1e300, -0.25}) {
    config.lr = value;
    EXPECT_EQ(parsed(config_toml(config)).lr, value);
  }
  EXPECT_EQ(parsed(config_toml(config)).seed, config.seed);
  EXPECT_EQ(parsed(config_toml(config)).layers, config.layers);
}

TEST(ConfigToml, ReadsWhatOlderVersionsAndPeopleWrite) {
  const TrainConfig config = parsed(
      "# a comment\r\n\n  steps = 12  # of them\npreset=muon\ndata='C:\\x#\"y\"'\nvocab = \"a\\u00e9\" # é\n"
      "cuda-graph=0\ndeterministic=1\nlr=1e-05\nradius=\"hidden=0.5,embedding=2\"");
  EXPECT_EQ(config.steps, 12);
  EXPECT_EQ(config.preset, "muon");
  EXPECT_EQ(config.data, "C:\\x#\"y\"");
  EXPECT_EQ(config.vocab, "a\u00e9");
  EXPECT_FALSE(config.cuda_graph);
  EXPECT_TRUE(config.deterministic);
  EXPECT_EQ(config.lr, 1e-5);
  EXPECT_EQ(config.radius, "hidden=0.5,embedding=2");
}

TEST(ConfigToml, KeptFieldsStay) {
  const TrainConfig config = parsed("steps=12\nseed=3\n", {"steps"});
  EXPECT_EQ(config.steps, TrainConfig{}.steps);
  EXPECT_EQ(config.seed, 3u);
}

TEST(ConfigToml, TheRadiusAutoChoosesPresetSphereUnlessOneIsNamed) {
  EXPECT_EQ(parsed("radius=auto").preset, "sphere");
  EXPECT_EQ(parsed("radius=auto\npreset=muon").preset, "muon");
  EXPECT_EQ(parsed("radius=auto", {"preset"}).preset, "unscion");
  EXPECT_EQ(parsed("radius=hidden=1").preset, "unscion");
  TrainConfig given;  // by a flag
  given.radius = "auto";
  parse_config_toml("radius=hidden=1", "file", given, {"radius"});
  EXPECT_EQ(given.radius, "auto");
  EXPECT_EQ(given.preset, "sphere");
}

TEST(ConfigToml, BadInputIsNamedWithItsLine) {
  EXPECT_INPUT_ERROR(parsed("steps=4\nstep-size=3\n"), "file line 2: unknown key 'step-size'");
  EXPECT_INPUT_ERROR(parsed("steps=4\nsteps=5\n"), "file line 2: the key 'steps' is given twice");
  EXPECT_INPUT_ERROR(parsed("[section]\n"), "file line 1: expected key=value, got '[section]'");
  EXPECT_INPUT_ERROR(parsed("full-batch\n"), "file line 1: expected key=value, got 'full-batch'");
  EXPECT_INPUT_ERROR(parsed("steps=many\n"), "line 1: steps: expected a whole number in -9223372036854775808..");
  EXPECT_INPUT_ERROR(parsed("steps=1.5\n"), "9223372036854775807, got '1.5'");
  EXPECT_INPUT_ERROR(parsed("steps=\n"), "got ''");
  EXPECT_INPUT_ERROR(parsed("seed=-1\n"), "seed: expected a whole number in 0..18446744073709551615, got '-1'");
  EXPECT_INPUT_ERROR(parsed("seed=99999999999999999999\n"), "seed: expected a whole number in 0..");
  EXPECT_INPUT_ERROR(parsed("lr=fast\n"), "line 1: lr: expected a number, got 'fast'");
  EXPECT_INPUT_ERROR(parsed("full-batch=yes\n"), "full-batch: expected true or false, got 'yes'");
  EXPECT_INPUT_ERROR(parsed("data=\"a\n"), "file line 1: the string \"a has no closing quote");
  EXPECT_INPUT_ERROR(parsed("data=\"a\\\"\n"), "has no closing quote");
  EXPECT_INPUT_ERROR(parsed("data=\"a\" b\n"), "expected nothing after \"a\", got b");
  EXPECT_INPUT_ERROR(parsed("data=\"a\\q\"\n"), "expected UTF-8 text with the escapes of TOML, got \"a\\q\"");
  TrainConfig config;
  config.data = "\xff";
  EXPECT_INPUT_ERROR(config_toml(config), "--data: expected text in UTF-8");
}

TEST(ConfigToml, ReadsTheConfigOfARun) {
  const TemporaryFolder folder;
  EXPECT_INPUT_ERROR(read_run_config(folder.path()), "holds no run (no config.toml)");
  RunDirectory::create(folder.path() / "run", "steps=3\n");
  const TrainConfig config = read_run_config(folder.path() / "run");
  EXPECT_EQ(config.steps, 3);
  EXPECT_EQ(config.out, (folder.path() / "run").string());
  TrainConfig other;
  EXPECT_INPUT_ERROR(read_config_toml(folder.path() / "none", other), "config: no file ");
  EXPECT_INPUT_ERROR(read_config_toml(folder.path(), other), "is a folder, not a file");
}

TEST(ConfigFields, RanksMayDifferInPathsOnly) {
  TrainConfig config;
  config.data = "here";
  config.vocab = "there";
  config.val_data = "elsewhere";
  const auto values = values_shared_by_ranks(config);
  EXPECT_EQ(values, values_shared_by_ranks(TrainConfig{}));
  EXPECT_EQ(values.size() + 3, config_fields().size());
  config.seed = 1;
  EXPECT_NE(values, values_shared_by_ranks(config));
}

}  // namespace
}  // namespace gluon::lab
