from typing import List, Optional, Sequence, Union

PerLayer = Union[float, Sequence[float]]

class Guarantee:
    theorem: str
    promise: str
    formula: str
    bound_formula: str
    weights: List[float]
    radii: List[str]
    largest_radii: List[float]
    momentum: str
    def iterations(self, precision: float) -> float: ...
    def bound(self, iterations: float) -> float: ...

class TableRow:
    source: str
    stochastic: bool
    layer_wise: bool
    rate: str
    radius: str
    one_minus_beta: str
    obstacle: str
    iterations: Optional[float]

def theorem1(l0: PerLayer, l1: PerLayer, initial_gap: float, *, weighted: bool = False) -> Guarantee: ...
def theorem2(l0: PerLayer, l1: PerLayer, initial_gap: float, *, zeta: float, weighted: bool = False) -> Guarantee: ...
def theorem3(
    l0: PerLayer,
    l1: PerLayer,
    initial_gap: float,
    *,
    sigma: float,
    t: Optional[PerLayer] = None,
    noise_factor: PerLayer = 1.0,
) -> Guarantee: ...
def theorem_pl(l0: PerLayer, l1: PerLayer, initial_gap: float, *, mu: float) -> Guarantee: ...
def theorem_pl_without_l1(l0: PerLayer, l1: PerLayer, initial_gap: float, *, mu: float) -> Guarantee: ...
def table1(
    l0: PerLayer,
    l1: PerLayer,
    initial_gap: float,
    *,
    precision: float,
    noise: str = "none",
    sigma: Optional[float] = None,
    t: Optional[PerLayer] = None,
    noise_factor: PerLayer = 1.0,
) -> List[TableRow]: ...
def theorem1_radius(l0: float, l1: float, gradient_dual_norm: float) -> float: ...
def theorem2_radius(l0: float, l1: float, zeta: float, gradient_dual_norm: float) -> float: ...
def theorem3_beta(step: int) -> float: ...
def theorem3_radius(t: float, step: int) -> float: ...
def theorem3_largest_t(l1: float) -> float: ...
