#include "gluon/theory/prior_rates.h"

#include "gluon/core/check.h"

namespace gluon::theory {

double joint_smoothness(const Constants& constants) {
  constants.validate("prior rates");
  GLUON_CHECK(constants.l1_is_zero(), "prior rates: L-smoothness needs L1 = 0 in every layer, got ",
              constants.max_l1());
  return constants.sum_l0();
}

std::vector<PriorRate> prior_rates(const Constants& constants, NoiseKind noise, double precision) {
  constants.validate("prior rates");
  std::vector<PriorRate> rows = {
      {.source = "Kovalev 2025, theorem 1",
       .stochastic = false,
       .rate = "K^(-1/2)",
       .radius = "const ~ K^(-1/2)",
       .one_minus_beta = "-"},
      {.source = "Kovalev 2025, theorem 2",
       .stochastic = true,
       .rate = "K^(-1/4)",
       .radius = "const ~ K^(-3/4)",
       .one_minus_beta = "const ~ K^(-1/2)"},
      {.source = "Li 2025, theorem 2.1",
       .stochastic = true,
       .rate = "K^(-1/4)",
       .radius = "const ~ K^(-3/4)",
       .one_minus_beta = "const ~ K^(-1/2)"},
      {.source = "Pethick 2025, lemma 5.4",
       .stochastic = true,
       .rate = "K^(-1/4)",
       .radius = "const ~ K^(-3/4)",
       .one_minus_beta = "~ k^(-1/2)"},
  };
  Guarantee known;
  known.theorem = "prior rates";
  if (constants.l1_is_zero()) {
    const double factor = 6 * joint_smoothness(constants) * constants.initial_gap;
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
