"""Guarantees of the theorems of the Gluon paper: iterations, bounds, radii.

L0 and L1 are numbers, or lists with one entry per layer; `initial_gap` is f(X_0) - inf f.

>>> import gluon
>>> guarantee = gluon.theory.theorem1(l0=[1.0, 2.0], l1=[0.5, 0.5], initial_gap=3.0)
>>> guarantee.iterations(0.1)
1830.0
>>> guarantee.radii
['smooth(1,0.5)', 'smooth(2,0.5)']
"""

from ._core import theory as _theory

Guarantee = _theory.Guarantee
PriorRate = _theory.PriorRate
prior_rates = _theory.prior_rates
theorem1 = _theory.theorem1
theorem1_radius = _theory.theorem1_radius
theorem2 = _theory.theorem2
theorem2_radius = _theory.theorem2_radius
theorem3 = _theory.theorem3
theorem3_beta = _theory.theorem3_beta
theorem3_largest_t = _theory.theorem3_largest_t
theorem3_radius = _theory.theorem3_radius
theorem_pl = _theory.theorem_pl
theorem_pl_without_l1 = _theory.theorem_pl_without_l1

__all__ = [
    "Guarantee",
    "PriorRate",
    "prior_rates",
    "theorem1",
    "theorem1_radius",
    "theorem2",
    "theorem2_radius",
    "theorem3",
    "theorem3_beta",
    "theorem3_largest_t",
    "theorem3_radius",
    "theorem_pl",
    "theorem_pl_without_l1",
]
