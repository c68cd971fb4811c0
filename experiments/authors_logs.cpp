// The authors published the logs of two runs: NanoGPT-124M with unScion, and the CNN with full gradients. Fitting them
// needs no training, so the paper's constants can be checked digit by digit.

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

#include "experiments/layer_table.h"
#include "experiments/studies.h"
#include "gluon/core/check.h"
#include "gluon/smoothness/trajectory.h"
#include "lab/report/report_data.h"

namespace gluon::experiments {
namespace {

using lab::compare;
using lab::Finding;
using lab::rounded;
using lab::verdict;

constexpr double kHiddenRadius = 0.018, kEmbeddingRadius = 1.08;  // of the NanoGPT run
constexpr double kWorstError = 0.0065;  // of the six layers whose relative MSE the paper shows

// The authors number their layers, and the groups below follow from the numbers.
Trajectory read_log(const lab::Workbench& bench, const std::string& name, std::size_t layers) {
  const std::filesystem::path path = bench.material("paper-logs/" + name);
  Trajectory log = read_trajectory(path);
  bool theirs = log.layers.size() == layers;
  for (std::size_t i = 0; theirs && i < layers; ++i) theirs = log.layers[i].layer == std::to_string(i);
  GLUON_CHECK(theirs, "reproduce: ", path.string(), " must be the authors' log of ", layers,
              " numbered layers, got one of ", log.layers.size(), " layers, the first '", log.layers[0].layer, "'");
  return log;
}

std::string type_in_log(const LayerFit& layer) { return lab::place_of(layer.layer, 73).type; }

std::string cnn_group(const LayerFit& layer) {
  const int number = std::stoi(layer.layer);
  return number < 6 ? "convolutions" : number < 13 ? "biases" : "head";
}

double l1(const LayerFit& layer) { return layer.fit.l1; }
double error(const LayerFit& layer) { return layer.fit.mse_rel; }

double median_l1(const TrajectoryFit& fits, const Kind& kind_of, const std::string& kind) {
  return spread_of(values_of(fits, kind_of, kind, l1)).median;
}

void add_nanogpt(const Trajectory& log, lab::StudyResult& result) {
  const TrajectoryFit fits = fit_trajectory(log, {.lambda = 5, .skip_first = 0});
  const TrajectoryFit errors = fit_trajectory(log, {.lambda = 0, .skip_first = 0});
  std::vector<double> blocks;
  for (const LayerFit& layer : fits.layers) {
    if (type_in_log(layer) != "wte") blocks.push_back(layer.fit.l1);
  }
  const double hidden = spread_of(blocks).median, embedding = median_l1(fits, type_in_log, "wte");
  result.findings.push_back(compare("NanoGPT: L1 of the blocks, median of 72 layers", 70, hidden, 0.1));
  result.findings.push_back(compare("NanoGPT: L1 of the embedding", 1.3, embedding, 0.1));
  result.findings.push_back(compare("NanoGPT: predicted radius 1 / L1 of the blocks", 0.014, 1 / hidden, 0.1));
  result.findings.push_back(compare("NanoGPT: predicted radius of the embedding", 0.77, 1 / embedding, 0.1));
  const Spread share = spread_of(values_of(fits, type_in_log, "", share_of_l0));
  result.findings.push_back({"NanoGPT: share of L0 in L0 + L1 |g|*", "L0 near 0 in all layers", text_of(share),
                             "below 0.05 in nine of ten layers", verdict(share.high < 0.05)});
  const Spread mse = spread_of(values_of(errors, type_in_log, "", error));
  result.findings.push_back({"NanoGPT: relative MSE (lambda = 0), all 73 layers", "0.0003 to 0.0065 in six layers",
                             text_of(mse), "below 0.0065 in nine of ten layers", verdict(mse.high <= kWorstError)});
  const double products = hidden * kHiddenRadius, of_embedding = embedding * kEmbeddingRadius;
  result.findings.push_back({"NanoGPT: L1 times the radius that the run used, blocks and embedding",
                             "the predicted radii \"align closely with\" the tuned ones",
                             join(rounded(products, 3), " and ", rounded(of_embedding, 3)),
                             "cannot tell: noise between batches gives about sqrt(2) at every radius, see `estimator`",
                             lab::Verdict::kCannotTell});
  result.tables.push_back(
      layer_table("NanoGPT-124M, the authors' log: lambda = 5, relative MSE at lambda = 0", fits, errors, type_in_log));
  // Block 8's query matrix and the tied embedding, as in figures 3 and 6.
  for (const auto& [name, number] :
       {std::pair("authors-nanogpt-block-8-c_q", 48), std::pair("authors-nanogpt-wte", 72)}) {
    const LayerTrajectory& samples = log.layers[static_cast<std::size_t>(number)];
    const auto layer = std::ranges::find(fits.layers, samples.layer, &LayerFit::layer);
    if (layer == fits.layers.end()) continue;
    lab::Figure figure = layer_figure(name, samples, layer->fit);
    figure.title = join("the authors' NanoGPT, layer ", number);
    result.figures.push_back(std::move(figure));
  }
}

void add_cnn(const Trajectory& log, lab::StudyResult& result) {
  const TrajectoryFit fits = fit_trajectory(log, {.lambda = 5, .l0_zero = true});
  const TrajectoryFit with_first = fit_trajectory(log, {.lambda = 5, .l0_zero = true, .skip_first = 0});
  const TrajectoryFit free = fit_trajectory(log, {.lambda = 5});
  result.findings.push_back(compare("CNN, full batch: L1 of the convolutions (L0 = 0), median", 3,
                                    median_l1(fits, cnn_group, "convolutions"), 0.5));
  result.findings.push_back(
      compare("CNN, full batch: L1 of the biases (L0 = 0), median", 3, median_l1(fits, cnn_group, "biases"), 0.5));
  result.findings.push_back(
      compare("CNN, full batch: L1 of the head (L0 = 0)", 0.03, median_l1(fits, cnn_group, "head"), 0.5));
  result.findings.push_back({"CNN, full batch: L1 of the head with the first sample, which the fits above leave out",
                             "0.03", rounded(median_l1(with_first, cnn_group, "head")),
                             "within 50 %; the paper does not say that it leaves the sample out",
                             compare("", 0.03, median_l1(with_first, cnn_group, "head"), 0.5).verdict});
  const Spread share = spread_of(values_of(free, cnn_group, "", share_of_l0));
  result.findings.push_back({"CNN, full batch: share of L0 where the fit may choose it", "L0 = 0 is assumed",
                             text_of(share), "below 0.05 in nine of ten layers", verdict(share.high < 0.05)});
  result.tables.push_back(
      layer_table("CNN, the authors' full-batch log: lambda = 5, L0 = 0, first samples far above the others left out",
                  fits, fits, cnn_group));
}

}  // namespace

lab::StudyResult authors_logs(lab::Workbench& bench) {
  lab::StudyResult result;
  const Trajectory nanogpt = read_log(bench, "nanogpt-unscion.txt", 73), cnn = read_log(bench, "cnn-fullbatch.txt", 14);
  result.notes.emplace_back("Nothing is trained: both scales give the same numbers.");
  add_nanogpt(nanogpt, result);
  add_cnn(cnn, result);
  return result;
}

}  // namespace gluon::experiments
