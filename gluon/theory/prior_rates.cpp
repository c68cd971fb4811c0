#include "gluon/theory/prior_rates.h"

namespace gluon::theory {

std::vector<PriorRate> prior_rates(const Constants& constants, NoiseKind noise, double precision) {
  constants.validate("prior rates");
  std::vector<PriorRate> rows = {
      {"Kovalev 2025, theorem 1", false, "K^(-1/2)", "const ~ K^(-1/2)", "-"},
      {"Kovalev 2025, theorem 2", true, "K^(-1/4)", "const ~ K^(-3/4)", "const ~ K^(-1/2)"},
      {"Li 2025, theorem 2.1", true, "K^(-1/4)", "const ~ K^(-3/4)", "const ~ K^(-1/2)"},
      {"Pethick 2025, lemma 5.4", true, "K^(-1/4)", "const ~ K^(-3/4)", "~ k^(-1/2)"},
  };
  Guarantee known;
  known.theorem = "prior rates";
  if (constants.l1_is_zero()) {
    const double factor = 6 * constants.sum_l0() * constants.initial_gap;
    known.needed = [factor](double eps) { return factor / eps / eps; };
  } else {
    known.needed = [](double) { return 0.0; };
  }
  const double iterations = known.iterations(precision);
  for (PriorRate& row : rows) {
    if (!constants.l1_is_zero()) {
      row.obstacle = "needs L1 = 0 in every layer";
    } else if (noise != NoiseKind::kNone && !row.stochastic) {
      row.obstacle = "needs exact gradients";
    } else if (noise == NoiseKind::kRelative) {
      row.obstacle = "needs bounded variance";
    } else if (row.source.starts_with("Li") && constants.layers.size() > 1) {
      row.obstacle = "for one layer only";
    } else if (noise == NoiseKind::kNone) {
      row.iterations = iterations;
    }
  }
  return rows;
}

}  // namespace gluon::theory
