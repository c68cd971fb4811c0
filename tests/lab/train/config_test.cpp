#include "lab/train/config.h"

#include <limits>

#include "lab/train/config_fields.h"
#include "lab/train/effect.h"
#include "tests/expect_error.h"

namespace gluon::lab {
namespace {

TrainConfig with(const std::string& toml) {
  TrainConfig config;
  parse_config_toml(toml, "test", config);
  return config;
}

TEST(TrainConfig, TheDefaultsAndAnotherOrthogonalizerAreValid) {
  EXPECT_NO_THROW(TrainConfig().validate());
  EXPECT_NO_THROW(with("preset=muon\northogonalizer=svd").validate());
}

TEST(TrainConfig, RadiiReplaceThePresets) {
  const std::string report = with("radius=hidden=0.5,embedding=2")
                                 .geometry()
                                 .routing_report(std::vector<Layer>{{"w", at::zeros({2, 2}), Role::kHidden}});
  EXPECT_NE(report.find("0.5"), std::string::npos);
  EXPECT_EQ(report.find("0.018"), std::string::npos);
}

TEST(TrainConfig, TheDefaultScheduleDecaysOverTheLastThirtyPercent) {
  EXPECT_EQ(with("steps=100").resolved_schedule().name(), "linear(100,30,0)");
  EXPECT_EQ(with("schedule=constant").resolved_schedule().name(), "constant");
}

TEST(TrainConfig, PresetSphereTakesItsRadiiFromTheSteps) {
  const auto report = [](const std::string& toml) {
    const TrainConfig config = with("preset=sphere\n" + toml);
    config.validate();
    check_effect(config);
    const std::vector<Layer> layers{{"w", at::zeros({2, 2}), Role::kHidden}};
    check_radius_effect(config, layers);
    return config.geometry().routing_report(layers);
  };
  const std::string law = report("steps=400");
  EXPECT_NE(law.find("0.0409627 = 0.45 K^-0.4 with K = 400"), std::string::npos) << law;
  EXPECT_EQ(report("steps=400\nradius=auto"), law);
  EXPECT_NE(report("steps=401"), law);
  EXPECT_NE(report("radius=factor=2").find("horizon(0.9,0.4,400)"), std::string::npos);
  EXPECT_EQ(report("radius=hidden=0.05"), report("radius=hidden=0.05\nsteps=99"));
  EXPECT_NE(report("radius=hidden=0.05").find(" 0.05 "), std::string::npos);
  EXPECT_NO_THROW(with("smoothness-every=5\nsmoothness-geometry=sphere").validate());
}

TEST(TrainConfig, PresetSphereDecaysOverTheWholeRun) {
  EXPECT_EQ(with("preset=sphere\nsteps=100").resolved_schedule().name(), "linear(100,100,0)");
  EXPECT_EQ(with("preset=sphere\nradius=hidden=0.05").resolved_schedule().name(), "linear(400,400,0)");
  EXPECT_EQ(with("preset=sphere\nschedule=constant").resolved_schedule().name(), "constant");
}

TEST(TrainConfig, OnlyTheCnnSmoothsLabelsByDefault) {
  EXPECT_EQ(with("").resolved_label_smoothing(), 0);
  EXPECT_EQ(with("model=cifar-cnn").resolved_label_smoothing(), 0.2);
  EXPECT_FALSE(with("").smooths_language());
  EXPECT_TRUE(with("label-smoothing=0.1").smooths_language());
  EXPECT_FALSE(with("model=cifar-cnn\nlabel-smoothing=0.1").smooths_language());
}

TEST(TrainConfig, QkClipIsThePresetsUnlessGivenAndNeedsLogitsWithoutNorm) {
  EXPECT_EQ(with("qk-norm=0").resolved_qk_clip(), 0);
  EXPECT_EQ(with("qk-norm=0\nqk-clip=30").resolved_qk_clip(), 30);
  EXPECT_EQ(with("qk-norm=0\npreset=muonclip").resolved_qk_clip(), 100);
  EXPECT_EQ(with("qk-norm=0\npreset=muonclip\nqk-clip=30").resolved_qk_clip(), 30);
  EXPECT_EQ(with("qk-norm=0\npreset=muonclip\nqk-clip=0").resolved_qk_clip(), 0);
  EXPECT_EQ(with("preset=muonclip").resolved_qk_clip(), 0);
  EXPECT_EQ(with("model=cifar-cnn\nqk-norm=0\nqk-clip=30").resolved_qk_clip(), 0);
}

TEST(TrainConfig, LrIsForAdamW) {
  EXPECT_EQ(with("preset=adamw\nlr=0.25").geometry().rules()[0].radius->name(), "0.25");
  EXPECT_EQ(with("preset=muon\nlr=0.25").geometry().rules().back().radius->name(), "0.25");
}

TEST(TrainConfig, WeightDecayAppliesToEveryRule) {
  const Geometry geometry = with("weight-decay=0.5").geometry();
  EXPECT_FALSE(geometry.rules().empty());
  for (const Rule& rule : geometry.rules()) EXPECT_EQ(rule.decay.name(), "0.5");
}

TEST(TrainConfig, DecayTakesEveryForm) {
  const Geometry cautious = with("preset=muon\ndecay='cautious(0.5,linear(9,9))'").geometry();
  for (const Rule& rule : cautious.rules()) {
    EXPECT_EQ(rule.decay.name(), "cautious(0.5,linear(9,9,0))");
  }
  EXPECT_EQ(with("preset=adamw\ndecay=0.25").geometry().rules()[0].decay.constant(), 0.25);
}

TEST(TrainConfig, NormalizeIsForSpectralNorms) {
  const Geometry geometry = with("normalize='adamuon(0.9)'").geometry();
  for (const Rule& rule : geometry.rules()) {
    EXPECT_EQ(rule.normalize.name(), rule.norm.is_spectral() ? "adamuon(0.9)" : "none") << rule.norm.name();
  }
  EXPECT_EQ(with("preset=normuon\nnormalize=none").geometry().rules()[0].normalize.name(), "none");
  EXPECT_EQ(with("preset=normuon\nlr=0.25").geometry().rules().back().radius->name(), "0.25");
}

TEST(TrainConfig, TheEstimatorFollowsTheBatch) {
  EXPECT_EQ(with("").estimator(), Estimator::kSameBatch);
  EXPECT_EQ(with("full-batch=true").estimator(), Estimator::kFull);
}

const std::pair<const char*, const char*> kBadConfigs[] = {
    {"steps=0", "--steps must be >= 1, got 0"},
    {"steps=7861783749513095782", "--steps must be <= 9007199254740992, got 7861783749513095782"},
    {"batch=-1", "--batch must be in 1..2147483648, got -1"},
    {"batch=1152921504606846976", "--batch must be in 1.."},
    {"accumulate=0", "--accumulate must be in 1.."},
    {"accumulate=1099511627776", "--accumulate must be in"},
    {"parts=4611686018427387904", "--parts must be in 0..65536"},
    {"seq=-4", "--seq must be in 1..16777216, or 0 for the model's default, got -4"},
    {"layers=-3", "--layers must be in 1.."},
    {"width=1073741824", "--width must be in 1.."},
    {"heads=-1", "--heads must be in 1.."},
    {"vocabulary=-1", "--vocabulary must be in 1.."},
    {"val-tokens=-1", "--val-tokens must be >= 1, or 0 for the default, got -1"},
    {"train-images=-3", "--train-images must be >= 1, or 0 for all, got -3"},
    {"test-images=-3", "--test-images must be >= 1"},
    {"eval-every=0", "--eval-every must be >= 1, got 0"},
    {"save-every=0", "--save-every must be >= 1, got 0"},
    {"on-nan=ignore", "--on-nan must be error, skip or rollback, got 'ignore'"},
    {"on-nan=skip\nnan-limit=0", "--nan-limit must be >= 1, got 0"},
    {"clip=-1", "--clip must be finite and >= 0, got -1"},
    {"lr=-1", "--lr must be finite and > 0, got -1"},
    {"lr=0.25", "--lr is the learning rate of AdamW; preset unscion takes --radius instead"},
    {"preset=sgd\nlr=0.25", "--lr is the learning rate of AdamW; preset sgd takes --radius instead"},
    {"preset=scion\nweight-decay=0.5", "exclude each other"},
    {"decay=often", "decay: unknown name 'often'; allowed are a number, decoupled(WEIGHT[,SCHEDULE])"},
    {"decay=-1", "Decay: the weight decay must be >= 0 and finite, got -1"},
    {"decay=0.5\nweight-decay=0.25", "--weight-decay 0.25 and --decay 0.5 set the same; give one"},
    {"preset=scion\ndecay='cautious(0.5)'", "exclude each other, got decay cautious(0.5) and ball 50"},
    {"normalize=rows", "normalize: unknown name 'rows'; allowed are none, normuon(BETA2[,EPS])"},
    {"preset=scion\nnormalize='normuon(0.9)'", "a ball holds steps along the LMO alone"},
    {"preset=sphere\nweight-decay=0.5", "exclude each other, got weight decay 0.5 and sphere auto"},
    {"preset=unscion\nradius=auto", "--radius auto: preset unscion has no law for its radii, only sphere has one"},
    {"preset=sphere\nradius=steps=5", "--radius steps: preset sphere takes them from --steps"},
    {"preset=sphere\nradius=auto,hidden=1", "--radius: expected group=radius,..., got 'auto,hidden=1'"},
    {"preset=sphere\nlr=1", "--lr is the learning rate of AdamW; preset sphere takes --radius instead"},
    {"label-smoothing=1", "--label-smoothing must be in [0, 1), or negative for the model's default, got 1"},
    {"qk-clip=1e-60", "--qk-clip must be in 1e-30..1e+30, the range of float32, or 0 for none, got 1e-60"},
    {"device=tpu", "--device must be cpu, cuda or cuda:N with N in 0..99, got 'tpu'"},
    {"device=cuda:", "--device must be cpu, cuda or cuda:N"},
    {"device=cuda:-1", "--device must be cpu, cuda or cuda:N"},
    {"device=cuda:01", "--device must be cpu, cuda or cuda:N"},
    {"device=cuda:100", "--device must be cpu, cuda or cuda:N"},
    {"device=cuda:1x", "--device must be cpu, cuda or cuda:N"},
    {"device=cudas", "--device must be cpu, cuda or cuda:N"},
    {"precision=int8", "--precision must be float32 or bfloat16, got 'int8'"},
    {"preset=lion", "preset: unknown name 'lion'"},
    {"momentum=fast", "momentum: unknown name 'fast'"},
    {"schedule=up", "schedule: unknown name 'up'"},
    {"orthogonalizer=qr", "unknown orthogonalizer 'qr'"},
    {"radius=hidden", "--radius: expected group=radius,..., got 'hidden'"},
    {"radius=hidden=1,hidden=2", "--radius: group 'hidden' is given twice"},
    {"radius=hidden=x", "--radius hidden: expected a number, got 'x'"},
    {"full-batch=true\naccumulate=2", "exclude each other"},
    {"smoothness-every=-1", "--smoothness-every must be >= 1, or 0 for no samples, got -1"},
    {"smoothness-start=-1", "--smoothness-start must be >= 0, got -1"},
    {"smoothness-mode=unknown", "--smoothness-mode must be consecutive, full or same_batch, got 'unknown'"},
    {"smoothness-mode=full", "--smoothness-mode full needs --full-batch"},
    {"full-batch=true\nsmoothness-mode=same_batch",
     "--full-batch needs --smoothness-mode full or an empty one, got same_batch"},
    {"smoothness-geometry=lion", "unknown name 'lion'"},
    {"smoothness-dual=qr", "'qr'"},
    {"preset=adamw\nlr=1\nradius=all=2", "--lr and --radius all set the same learning rate; give one"},
    // Beyond float32.
    {"radius=hidden=1e39", "--radius hidden must be in 1e-30..1e+30, the range of float32, got 1e+39"},
    {"radius=hidden=1e-60", "--radius hidden must be in 1e-30..1e+30"},
    {"radius=hidden=smooth(0,1e39)", "--radius hidden must be in 1e-30..1e+30"},
    {"preset=muon\nlr=1e39", "--lr must be in 1e-30..1e+30"},
    {"weight-decay=1e39", "--weight-decay must be in 1e-30..1e+30"},
    {"decay='cautious(1e39)'", "--decay must be in 1e-30..1e+30"},
    {"preset=scion\nradius=gamma=1e-20,hidden=1e-20", "a radius of --preset scion must be in 1e-30..1e+30"},
};

const std::pair<const char*, const char*> kWithoutEffect[] = {
    {"preset=adamw\nmomentum=ema(0.1)", "--momentum has no effect on preset adamw, got ema(0.1)"},
    {"preset=sign_descent\northogonalizer=svd", "--orthogonalizer has no effect on preset sign_descent"},
    {"preset=adamw\nnormalize='normuon(0.9)'",
     "--normalize has no effect on preset adamw, which has no spectral norm, got normuon(0.9)"},
    {"test-images=5", "--train-images and --test-images need --model cifar-cnn"},
    {"model=cifar-cnn\nval-tokens=8", "cifar-cnn validates on the test images of --data; it does not take --val-data"},
    {"model=cifar-cnn\nval-data=a.txt", "it does not take --val-data or --val-tokens"},
    {"model=cifar-cnn\nwidth=8", "cifar-cnn does not take --layers, --width"},
    {"qk-clip=100", "--qk-clip 100 clips attention logits, which QK norm bounds already: give --qk-norm 0"},
    {"preset=muonclip",
     "--preset muonclip clips attention logits, which QK norm bounds already: give --qk-norm 0, or --qk-clip 0 for its "
     "steps alone"},
    {"model=cifar-cnn\nqk-clip=100",
     "--qk-clip 100 clips attention logits, which cifar-cnn does not have: choose another --model"},
    {"model=cifar-cnn\npreset=muonclip", "which cifar-cnn does not have: choose another --model, or --qk-clip 0"},
    {"preset=sphere\nqk-norm=0\nqk-clip=100",
     "--qk-clip 100 has no effect on preset sphere, whose spheres give projections their length back"},
    {"model=cifar-cnn\nqk-norm=0", "cifar-cnn does not take --qk-norm, it has no queries and keys"},
    {"model=cifar-cnn\nvocab=gpt2", "cifar-cnn does not take --vocab, which tokenizes text, got gpt2"},
    {"nan-limit=3", "--nan-limit has no effect with --on-nan error, got 3"},
    {"clip=2", "--clip has no effect on preset unscion, only on adamw, got 2"},
    {"preset=deterministic_gluon\northogonalizer=svd", "--orthogonalizer has no effect on preset deterministic_gluon"},
    {"smoothness-mode=consecutive", "--smoothness-mode has no effect without --smoothness-every, got consecutive"},
    {"smoothness-start=4", "--smoothness-start has no effect without --smoothness-every, got 4"},
    {"steps=12\nsmoothness-every=5\nsmoothness-start=11",
     "--smoothness-start 11 leaves no sample: with --steps 12 and --smoothness-every 5 the last begins at step 10"},
    {"steps=1\nsmoothness-every=5", "--smoothness-every 5 leaves no sample: one spans two steps, got --steps 1"},
    {"smoothness-geometry=scion", "--smoothness-geometry has no effect without --smoothness-every"},
    {"smoothness-dual=exact", "--smoothness-dual has no effect without --smoothness-every"},
    {"preset=sign_descent\nsmoothness-every=2\nsmoothness-dual=exact", "--smoothness-dual has no effect on norms"},
};

TEST(TrainConfig, BadValuesAreNamed) {
  for (const auto& [toml, message] : kBadConfigs) EXPECT_INPUT_ERROR(with(toml).validate(), message);
  TrainConfig config;
  config.weight_decay = -std::numeric_limits<double>::infinity();
  EXPECT_INPUT_ERROR(config.validate(), "--weight-decay must be finite, got -inf");
  std::swap(config.weight_decay, config.label_smoothing);
  EXPECT_INPUT_ERROR(config.validate(), "--label-smoothing must be in [0, 1)");
  config = {};
  config.qk_clip = std::numeric_limits<double>::quiet_NaN();
  EXPECT_INPUT_ERROR(config.validate(), "or 0 for none, got nan");
  config = {};
  config.lr = std::numeric_limits<double>::infinity();
  EXPECT_INPUT_ERROR(config.validate(), "--lr must be finite and > 0, got inf");
}

TEST(TrainConfig, FlagsWithoutEffectAreNamed) {
  EXPECT_NO_THROW(check_effect(TrainConfig()));
  EXPECT_NO_THROW(check_effect(with("preset=adamw\nclip=2")));
  EXPECT_NO_THROW(check_effect(with("qk-norm=0\nqk-clip=100")));
  EXPECT_NO_THROW(check_effect(with("qk-norm=0\npreset=muonclip")));
  EXPECT_NO_THROW(check_effect(with("preset=muonclip\nqk-clip=0")));
  EXPECT_NO_THROW(check_effect(with("smoothness-every=2\nsmoothness-mode=consecutive\nsmoothness-dual=exact")));
  EXPECT_NO_THROW(check_effect(with("steps=12\nsmoothness-every=5\nsmoothness-start=10")));
  for (const auto& [toml, message] : kWithoutEffect) {
    EXPECT_NO_THROW(with(toml).validate()) << toml;  // a run of an older program can be read
    EXPECT_INPUT_ERROR(check_effect(with(toml)), message);
  }
}

TEST(TrainConfig, RadiiOfGroupsThatTheModelLacksAreNamed) {
  const std::vector<Layer> layers{{"w", at::zeros({2, 2}), Role::kHidden}, {"e", at::zeros({2, 2}), Role::kEmbedding}};
  const auto check = [&](const std::string& toml) { check_radius_effect(with(toml), layers); };
  EXPECT_NO_THROW(check("radius=hidden=0.5,embedding=2"));
  EXPECT_NO_THROW(check("preset=scion\nradius=gamma=0.5,hidden=2"));
  EXPECT_NO_THROW(check("preset=deterministic_gluon\nradius=L0=0,L1=3"));
  EXPECT_NO_THROW(check("preset=adamw\nlr=0.5"));
  EXPECT_INPUT_ERROR(check("radius=hidden=0.5,conv=1"),
                     "--radius conv=1 has no effect: nanogpt-tiny has no layers that preset unscion moves by it");
  EXPECT_INPUT_ERROR(check("radius=untied_embedding=1"), "--radius untied_embedding=1 has no effect");
  EXPECT_INPUT_ERROR(check("preset=scion\nradius=conv_gamma=0.1"), "--radius conv_gamma=0.1 has no effect");
  EXPECT_NO_THROW(check("radius=auto"));
  const std::vector<Layer> head{{"head", at::zeros({2, 2}), Role::kHead}};
  EXPECT_INPUT_ERROR(check_radius_effect(with("radius=auto"), head),
                     "--radius auto has no effect: nanogpt-tiny has no layers that preset sphere moves by its law");
}

}  // namespace
}  // namespace gluon::lab
