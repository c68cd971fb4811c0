// Presets: the named methods of the paper as geometries.
//
//   muon, muon(SCALE)    hidden, conv: spectral with one of the scales none, aspect (muon's) and match_adam; AdamW
//                        elsewhere. Public Muon's own steps are OptimizerOptions{.orthogonalizer = "newton_schulz"}
//   normuon[(SCALE)]     muon with normalize = normuon(0.95)
//   muonclip             muon(match_adam) with Kimi K2's numbers; its clip of attention logits is update/qk_clip.h
//   scion, unscion       hidden     scaled(sqrt(n/m),spectral)
//                        conv       scaled(sqrt(kernel*n/m),spectral)
//                        head       scaled(n,max_entry)
//                        embedding  scaled(1/sqrt(n),rows) beside a head; without one it is tied with the
//                                   head and takes its norm
//                        vectors    scaled(1/sqrt(m),euclidean)
//   sphere               those norms; hidden and conv stay on spheres and take relative steps by the length of the run
//   sign_descent         max_entry everywhere
//   normalized_descent   euclidean everywhere
//   sgd                  euclidean everywhere with the radius steepest(ETA): X <- X - ETA M
//   deterministic_gluon  another preset's norms with theorem 1's radii, full gradients and no momentum
//   adamw                AdamW everywhere
//
// Head and vectors of a pure CNN (convolutions, no hidden layers) move with its convolutions' radius, elsewhere with
// the language model's. (paper: section "Special cases of the LMO framework"; radii: its NanoGPT and CNN runs.)

#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "gluon/geometry/geometry.h"

namespace gluon::presets {

/// How the public Muons scale U V^T for an m x n matrix.
enum class MuonScale {
  kNone,       // 1
  kAspect,     // sqrt(max(1, m/n)), KellerJordan's Muon
  kMatchAdam,  // 0.2 sqrt(max(m, n)), Moonshot's: update RMS like AdamW's
};

struct MuonOptions {
  double hidden = 0.02;
  MuonScale scale = MuonScale::kAspect;
  Decay weight_decay{};   // of matrices; vectors and scalars do not decay
  double adamw = 3e-4;    // learning rate of the layers that are no hidden matrices
  Normalize normalize{};  // of hidden matrices and convolutions; normuon's own is normuon(0.95)
};

/// Kimi K2's numbers (arXiv 2507.20534), of a model of 1e12 parameters; its momentum is Moonlight's.
struct MuonClipOptions {
  double hidden = 2e-4;  // an AdamW learning rate, as the scale is match_adam
  double weight_decay = 0.1;
  double adamw = 2e-4;
};

/// Radii t of unconstrained Scion; the defaults are those of the paper's NanoGPT and CIFAR-10 runs, which take them
/// from Pethick et al., 2025, tables 7 and 10.
struct UnscionOptions {
  double hidden = 0.018;
  double embedding = 1.08;
  double conv = 0.5;
  std::optional<double> untied_embedding = {};  // an embedding beside a head: the hidden layers'
  std::optional<double> head = {};              // the embedding's; in a pure CNN 100 times the convolutions'
  std::optional<double> vector = {};            // the hidden layers'; in a pure CNN the convolutions'
};

/// Scion keeps each layer in a ball: X <- (1 - gamma) X + gamma rho lmo(M). Radii rho as in the Scion paper's
/// NanoGPT and CNN runs; a step moves by t = gamma rho.
struct ScionOptions {
  double gamma = 0.00036;
  double conv_gamma = 1.0 / 16;  // of convolutions, and of head and vectors in a pure CNN
  double hidden = 50;
  double embedding = 3000;
  double conv = 8;
  std::optional<double> untied_embedding = {};  // as above, with rho for t
  std::optional<double> head = {};
  std::optional<double> vector = {};
};

/// Hidden matrices and convolutions stay on spheres of their norms' own radius and take the relative step factor 0.45
/// K^-0.4 in a run of K steps, which a schedule brings to 0 over the whole run: Schedule::linear(K, K). From prototypes;
/// docs/tuning.md has them and what is not known yet.
struct SphereOptions {
  int64_t steps = 0;  // K; may be left out where hidden and conv are given
  double factor = 1;
  std::optional<double> hidden = {};  // relative steps instead
  std::optional<double> conv = {};
  double embedding = 0.7;                       // a radius t, as all below: these layers are on no sphere
  std::optional<double> untied_embedding = {};  // the hidden layers': rows of RMS 1 move as far as matrices on spheres
  std::optional<double> head = {};              // the embedding's
  std::optional<double> vector = {};            // the hidden layers'; in a pure CNN the convolutions'
};

/// Constants of theorem 1, shared by all layers, over the norms of `norms`.
struct DeterministicOptions {
  double l0 = 0;
  double l1 = 1;
  Geometry norms;
};

Geometry muon(const MuonOptions& options = {});

/// Muon with NorMuon's normalisation, normuon(0.95) unless the options have one. These defaults, hidden 0.02, Nesterov
/// 0.95, muon's scale and no decay, are those of the authors' normuon.py; the paper's algorithm 1 has the scale
/// match_adam. nanochat adds cautious decay: {.weight_decay = "cautious(0.2,linear(K,K))"}.
Geometry normuon(MuonOptions options = {});

Geometry muonclip(const MuonClipOptions& options = {});
Geometry scion(const ScionOptions& options = {});
Geometry unscion(const UnscionOptions& options = {});
Geometry sphere(const SphereOptions& options);
Geometry sign_descent(double radius = 3e-4);
Geometry normalized_descent(double radius = 0.02);
Geometry sgd(double learning_rate = 0.1);
Geometry deterministic_gluon(const DeterministicOptions& options);
Geometry adamw(double learning_rate = 3e-4, double weight_decay = 0.1);

/// Whether a preset is Muon: its name is muon or normuon, perhaps with a scale, or muonclip.
bool is_muon(std::string_view name);

/// The preset called `name` with the radii in `radii` instead of its own, keyed as the option fields above
/// ("hidden", "embedding", ..., "gamma", "L0", "L1", "all"). Throws InputError that lists the presets, Muon's
/// scales, or the keys this preset has.
Geometry make(std::string_view name, const std::map<std::string, double>& radii = {});

}  // namespace gluon::presets
