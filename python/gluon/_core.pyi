"""The C++ module. Its users are the Python files beside it; Geometry, preset and the results of fit are public."""

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

import torch

theory: Any  # typed in theory.pyi

__version__: str
default_orthogonalizer: str

class NonFiniteGradient(ValueError): ...
class RankLost(RuntimeError): ...

def infer_role(name: str, sizes: Sequence[int]) -> str: ...
def glob_match(pattern: str, name: str) -> bool: ...

class Layer:
    def __init__(self, name: str, parameter: torch.Tensor, role: str, group: int = 0) -> None: ...
    name: str
    parameter: torch.Tensor
    role: str
    group: int

def find_head(layers: Sequence[Layer]) -> Optional[int]: ...

class Geometry:
    def __init__(self, rules: Sequence[Dict[str, Any]], momentum: Union[float, str] = "ema(0.9)") -> None: ...
    rules: List[Dict[str, Any]]
    momentum: str
    def with_first(self, rule: Dict[str, Any]) -> Geometry: ...
    def routing_report(self, layers: Sequence[Layer]) -> str: ...

def check_norms(layers: Sequence[Layer], geometry: Geometry) -> None: ...
def norm(x: torch.Tensor, name: str, role: Optional[str] = None, orthogonalizer: str = ...) -> torch.Tensor: ...
def dual_norm(x: torch.Tensor, name: str, role: Optional[str] = None, orthogonalizer: str = ...) -> torch.Tensor: ...
def lmo(x: torch.Tensor, name: str, role: Optional[str] = None, orthogonalizer: str = ...) -> torch.Tensor: ...
def orthogonalize(x: torch.Tensor, method: str = ..., role: Optional[str] = None) -> torch.Tensor: ...

class Exchange:
    def wait(self) -> None: ...

class Collective:
    def __init__(
        self, group: Any, rank: int, ranks: Sequence[int], staging: Optional[torch.device] = None
    ) -> None: ...
    rank: int
    size: int
    def sum(self, tensor: torch.Tensor) -> None: ...
    def all_to_all(
        self,
        received: torch.Tensor,
        received_counts: Sequence[int],
        sent: torch.Tensor,
        sent_counts: Sequence[int],
    ) -> Exchange: ...

def check_agreement(collective: Collective, what: str, text: str) -> None: ...

class OptimizerState:
    def __init__(self, version: int, step: int, tensors: Dict[str, torch.Tensor]) -> None: ...
    version: int
    step: int
    tensors: Dict[str, torch.Tensor]
    def find(self, name: str, sizes: Sequence[int]) -> torch.Tensor: ...

state_version: int

class StepObserver: ...

class Optimizer:
    def __init__(
        self,
        layers: Sequence[Layer],
        geometry: Geometry,
        *,
        momentum: Union[None, float, str],
        orthogonalizer: str,
        schedule: str,
        non_finite: str,
        adamw_betas: Tuple[float, float],
        adamw_eps: float,
        adamw_clip: float,
        collective: Optional[Collective],
        warn: Callable[[str], None],
    ) -> None: ...
    def step(self) -> None: ...
    def wait(self) -> None: ...
    def reduce_gradients(self) -> None: ...
    def zero_grad(self) -> None: ...
    def owns(self, layer: int) -> bool: ...
    def effective_radii(self) -> List[Tuple[str, float]]: ...
    def set_group_radius_multiplier(self, group: int, multiplier: float) -> None: ...
    def set_group_beta(self, group: int, beta: float) -> None: ...
    beta: Optional[float]
    steps_taken: int
    steps_skipped: int
    layers: List[Layer]
    def state_bytes(self) -> int: ...
    def add_observer(self, observer: StepObserver) -> None: ...
    def state(self) -> OptimizerState: ...
    def layer_state(self, layer: int) -> OptimizerState: ...
    def load_state(self, state: OptimizerState) -> None: ...

class StepPlan:
    rules: List[int]
    owners: List[int]
    matrices: List[List[Tuple[str, str]]]

def route(layers: Sequence[Layer], geometry: Geometry, orthogonalizer: str, ranks: int = 1) -> StepPlan: ...
def momentum_of(geometry: Geometry, momentum: Union[None, float, str]) -> Tuple[Optional[float], bool]: ...
def preset(name: str, radius: Dict[str, float] = {}) -> Geometry: ...
def muon_geometry(hidden: float, adjust_lr_fn: str, weight_decay: float, adamw: float) -> Geometry: ...
def initialize(layers: Sequence[Layer], geometry: Geometry, ball: float = 1.0, seed: int = 0) -> None: ...
def start_on_spheres(layers: Sequence[Layer], geometry: Geometry, seed: int = 0) -> None: ...

def qk_clip(
    query_weight: torch.Tensor,
    key_weight: torch.Tensor,
    max_logits: torch.Tensor,
    tau: float = 100.0,
    alpha: float = 0.5,
) -> torch.Tensor: ...

class Trajectory:
    estimator: str
    layers: List[str]
    def rows(self) -> List[Dict[str, Any]]: ...
    def extend(self, later: Trajectory) -> None: ...
    def to_csv(self, path: str) -> None: ...
    def gathered(self, collective: Collective) -> Trajectory: ...
    def __len__(self) -> int: ...

class Recorder(StepObserver):
    def __init__(
        self,
        layers: Sequence[Layer],
        geometry: Geometry,
        *,
        every: int,
        start: int,
        mode: str,
        dual: str,
        owned: Sequence[bool],
    ) -> None: ...
    def needs_reference(self, step: int) -> bool: ...
    def take_reference(self) -> None: ...
    def measured(self) -> Trajectory: ...
    def take_samples(self) -> Trajectory: ...

def measuring_geometry(geometry: Geometry) -> Geometry: ...
def read_trajectory(path: str) -> Trajectory: ...

class Fit:
    l0: float
    l1: float
    mse_rel: float
    violations: float
    samples: int
    left_out: int
    doubt: str

class LayerFit:
    layer: str
    group: str
    fit: Fit
    unmoved: int
    gradient: float
    radius: float

class UnfittedLayer:
    layer: str
    group: str
    reason: str

class GroupRadius:
    group: str
    layers: int
    l0: float
    l1: float
    gradient: float
    predicted: float
    used: float
    doubt: str

class TrajectoryFit:
    estimator: str
    layers: List[LayerFit]
    unfitted: List[UnfittedLayer]
    def radii(self) -> List[GroupRadius]: ...

def fit_smoothness(
    smoothness: Sequence[float],
    gradient: Sequence[float],
    hinge: float = 5.0,
    l0_zero: bool = False,
    skip_first: Optional[int] = None,
) -> Fit: ...
def fit_trajectory(
    trajectory: Trajectory, hinge: float = 5.0, l0_zero: bool = False, skip_first: Optional[int] = None
) -> TrajectoryFit: ...
