#include "experiments/studies.h"

namespace gluon::experiments {

std::span<const lab::Study> studies() {
  static constexpr lab::Study kStudies[] = {
      {"authors-logs", "The authors' own logs, fitted again", "figures 1, 3, 5, 6 to 9, 11", authors_logs},
      {"nanogpt-smoothness", "Layer-wise smoothness of NanoGPT along unScion",
       "section \"Training NanoGPT on FineWeb\", figures 3, 6 to 8", nanogpt_smoothness},
      {"estimator", "What the two estimators say at other radii", "equation (dir_smooth); not tried in the paper",
       estimator},
      {"norms", "Euclidean against specialised norms",
       "appendix, \"Generalized smoothness under Euclidean vs. specialized norms\"", norms},
      {"adamw", "AdamW as baseline, and what its smoothness says about radii",
       "appendix, \"Learning rate transfer from AdamW\"", adamw_transfer},
      {"scaling-factors", "unScion's radii rho2 and rho3", "\"Effect of scaling factors\", figure 4", scaling_factors},
      {"cnn-full-batch", "Layer-wise smoothness of the CNN, full gradients",
       "section \"Training CNN on CIFAR-10\", figure 5", cnn_full_batch},
      {"cnn-stochastic", "Layer-wise smoothness of the CNN, mini-batches", "appendix, \"Stochastic gradients\"",
       cnn_stochastic},
      {"cnn-accuracy", "The CNN's test accuracy after eight epochs",
       "the run that its radii are from (Pethick et al., table 10)", cnn_accuracy},
      {"theorem3", "Theorem 3's radii and momentum in practice", "theorem 3", theorem3},
      {"radius-transfer", "The best radius over widths and depths", "not in the paper; its radii are those of one size",
       radius_transfer},
  };
  return kStudies;
}

}  // namespace gluon::experiments
