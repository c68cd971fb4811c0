"""Gluon as a torch.optim.Optimizer: parameter groups, schedulers and checkpoints around the C++ optimizer.

The C++ optimizer has the same parameters and gradients. This file contains torch's side: names and groups, "lr" and
"momentum" of the groups passed on before each step, and a new C++ optimizer with the old state when parameters are
added, or other keys of a group have changed. State dicts and copies are in checkpoints.py.
"""

import weakref
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import torch

from . import _core
from .arguments import hint_at_lr, unknown_argument
from .checkpoints import Checkpoints
from .clipping import ClippingWatch, ignores_lengths
from .conv1d import warn_of_rows, with_transposed
from .distributed import all_or_none, check_layers, check_owners, collective_of
from .groups import Snapshot, check_keys, number
from .live_state import LiveState
from .parameters import (
    RULE_KEYS, Parameters, check_patterns, geometry_from, layers_of, named_group, parameter_groups,
    refuse_other_parameters, rules_of_group, without_frozen,
)  # fmt: skip
from .sharded import ShardedCore
from .shards import is_dtensor
from .warning import warn

# The step is one call into C++, so torch.compile has nothing to trace. Torch's own optimizers use the same decorator.
_not_traced: Callable[[Any], Any] = getattr(torch, "_disable_dynamo", lambda function: function)


class Gluon(Checkpoints, torch.optim.Optimizer):
    """Moves every layer along the LMO of its own norm, by its radius.

    Args:
        params: ``model.named_parameters()``, the model itself (roles then follow the module types, and transformers'
            Conv1D counts as Linear), groups as dicts, or plain parameters (roles are guessed from shapes, with a
            warning). A group may set ``lr``, ``momentum``, ``role`` and, for its own layers, ``norm``, ``normalize``
            (``"normuon(0.95)"``, ``"adamuon(0.95)"``), ``radius``, ``weight_decay``, ``decay`` (in its place
            ``"cautious(0.01)"``, or with a schedule ``"cautious(0.01,linear(5000,5000))"``), ``ball``, ``sphere`` and
            ``split``. Changes take effect at the next step; other keys raise ValueError.
        lr: factor on all radii, which torch's schedulers change.
        preset: ``"unscion"`` (the default), ``"scion"``, ``"sphere"`` (with ``radius="auto"`` the default),
            ``"muon"`` and ``"normuon"`` (also ``"muon(SCALE)"`` and ``"normuon(SCALE)"`` with ``none``, ``aspect``,
            which is the default, or ``match_adam``), ``"muonclip"`` (with ``gluon.qk_clip`` after each step),
            ``"sign_descent"``, ``"normalized_descent"``, ``"sgd"``, ``"deterministic_gluon"`` or ``"adamw"``.
        radius: radii of the preset by key, ``{"hidden": 0.018, "embedding": 1.08}``; a number for presets with a single
            radius; ``"auto"`` for preset ``"sphere"``, whose default it is: relative steps from the length of the run,
            ``steps``. Other optimizers call a radius learning rate. That of ``"sgd"`` is one: lr / (1 - 0.9) for the
            lr of ``torch.optim.SGD(lr, momentum=0.9)``, which weighs new gradients by 1 and not by 1 - 0.9.
        steps: length of the run, for preset ``"sphere"`` only.
        momentum: beta, the weight of the OLD momentum, or a name: ``"nesterov(0.95)"``, ``"none"``, ``"theorem3"``.
        geometry: rules (dicts) or a ``Geometry``. Without a preset it must cover all layers; with one, its rules come
            first.
        orthogonalizer: for spectral norms: ``"polar_squares:9"``, ``"newton_schulz:5"``, ``"svd"``, ...
        roles: roles by glob on the name, ``{"fc3.weight": "head"}``.
        schedule: a schedule of the library, ``"linear(5000,1450)"``, which multiplies ``lr``; by default
            ``"constant"``, with ``steps`` linear to 0 over all of them.
        non_finite: reaction to a NaN or Inf gradient: ``"error"`` (nothing moves) or ``"skip"`` (the step is skipped).
        adamw_betas, adamw_eps, adamw_clip: for layers that the geometry leaves to AdamW.
        process_group: the ranks that share the layers, a group of torch.distributed such as
            ``torch.distributed.group.WORLD`` (after ``init_process_group()``). By default every rank computes all
            layers.

    With a process group every layer has one owner, which keeps its momentum and computes its update. ``step()`` sends
    the mean of all ranks' gradients to the owners and the new parameters to all ranks, so the model needs no
    DistributedDataParallel; inside one it trains the same, and gradients are exchanged twice. All ranks must start with
    equal parameters, freeze and unfreeze the same ones, and make these calls together: the constructor,
    ``add_param_group``, ``step``, ``state_dict``, ``load_state_dict`` and ``effective_radii``. Otherwise they wait for
    each other until the group's timeout. States and radii are whole on every rank, and a state can be loaded on any
    number of ranks. After a step the owner's gradient of a layer is the mean; other ranks keep their own. When ranks
    cannot reach each other, RankLost (a RuntimeError) is raised. Such an optimizer cannot be copied or pickled
    (TypeError), because its momentum is distributed over the ranks.

    Parameters may be DTensors, as fully_shard() makes them: replicated, or sharded on dimension 0 over one dimension of
    their mesh, whose ranks then share the layers without ``process_group``, make the same calls together and keep
    DTensors as states.

    >>> import torch, gluon
    >>> weight = torch.nn.Parameter(torch.zeros(2, 2))
    >>> optimizer = gluon.Gluon([("weight", weight)], preset="sign_descent", radius=0.5, momentum="none")
    >>> weight.grad = torch.tensor([[1.0, -2.0], [3.0, 0.0]])
    >>> optimizer.step()
    >>> weight.tolist()
    [[-0.5, 0.5], [-0.5, 0.0]]
    >>> optimizer.effective_radii()
    {'weight': 0.5}
    """

    def __init__(
        self,
        params: Parameters,
        lr: float = 1.0,
        *,
        preset: Optional[str] = None,
        radius: Union[None, float, str, Mapping[str, float]] = None,
        momentum: Union[None, float, str] = None,
        geometry: Union[None, _core.Geometry, Sequence[Mapping[str, Any]]] = None,
        orthogonalizer: str = _core.default_orthogonalizer,
        roles: Optional[Mapping[str, str]] = None,
        schedule: Optional[str] = None,
        non_finite: str = "error",
        adamw_betas: Tuple[float, float] = (0.9, 0.95),
        adamw_eps: float = 1e-8,
        adamw_clip: float = 0.0,
        process_group: Any = None,
        steps: Optional[int] = None,
        **unknown: Any,
    ) -> None:
        for name in unknown:
            raise unknown_argument(type(self), name)
        self._collective = None if process_group is None else collective_of(process_group)
        self._module = weakref.ref(params) if isinstance(params, torch.nn.Module) else None
        groups, self._module_roles = parameter_groups(params)
        self._roles = dict(roles or {})
        self._base = geometry_from(preset, radius, geometry, steps)
        if schedule is None:
            schedule = "constant" if steps is None else f"linear({steps},{steps})"
        self._options: Dict[str, Any] = {
            "momentum": momentum,
            "orthogonalizer": orthogonalizer,
            "schedule": schedule,
            "non_finite": non_finite,
            "adamw_betas": tuple(adamw_betas),
            "adamw_eps": adamw_eps,
            "adamw_clip": adamw_clip,
        }
        self._observers: List[Any] = []
        self._joined: set = set()  # names of the core's layers
        self._built = False
        self._skipped = 0  # steps of earlier cores
        super().__init__(groups, {"lr": lr, **self._group_defaults})
        self._install(self._make_core(set()))
        beta = self._core.beta
        self._default_momentum = None if beta is None else self._momentum_setting(beta)
        if self._momentum_is_beta and beta is not None:
            self.defaults["momentum"] = self._default_momentum
        for group in self.param_groups:
            self._fill(group)
        self._hand_on_settings(self._core)
        if self._lr_is_a_factor and radius is None and geometry is None:
            hint_at_lr(self.param_groups, self._base)
        check_patterns(self._roles, self._names())
        warn_of_rows(self._rules_for(self._core.layers), self._core.layers, self._module_roles, orthogonalizer)
        # A rank's own gradients have other lengths than their mean, which clipping may have shortened.
        self._clipping = ClippingWatch() if self._collective is None and ignores_lengths(self._base) else None

    # What a subclass may change: further defaults of groups; whether lr is a factor on radii that have values of their
    # own; and whether torch's schedulers, which look for "momentum" among the defaults, may write theirs there.
    _group_defaults: Mapping[str, Any] = {}
    _lr_is_a_factor = True
    _momentum_is_beta = True

    # Conversion between torch's "momentum" of a group and beta; a subclass may have another convention.
    def _momentum_setting(self, beta: float) -> float:
        return beta

    def _beta(self, setting: float) -> float:
        return setting

    def _parameters(self) -> Iterator[Tuple[str, torch.Tensor, int, Dict[str, Any]]]:
        """Name, parameter, number of the group, group."""
        for index, group in enumerate(self.param_groups):
            for name, parameter in zip(group["param_names"], group["params"]):
                yield name, parameter, index, group

    def _names(self) -> List[str]:
        return [name for name, *_ in self._parameters()]

    def _fill(self, group: Dict[str, Any]) -> None:
        if self._default_momentum is not None:
            group.setdefault("momentum", self._default_momentum)

    def _layers(self, joined: set) -> List[_core.Layer]:
        return layers_of(self._parameters(), self._roles, self._module_roles, joined)

    def _dtensor(self) -> Optional[str]:
        """The name of the first parameter that is a DTensor."""
        return next((name for name, parameter, *_ in self._parameters() if is_dtensor(parameter)), None)

    def _refuse_dtensors(self, what: str, instead: str) -> None:
        name = self._dtensor()
        if name is not None:
            raise ValueError(f"{what}: '{name}' is a DTensor, of which a rank may hold a part; {instead}")

    def _make_core(self, joined: set) -> Union[_core.Optimizer, ShardedCore]:
        """A core for the trainable parameters and those named in `joined`, frozen or not."""
        if self._collective is not None:
            self._refuse_dtensors("process_group", "leave it out: the ranks of its mesh share the layers")
        sharded = self._dtensor() is not None
        with all_or_none(self._collective, "when creating the optimizer"):
            layers = self._layers(joined)
            geometry = self._rules_for(layers)
            self._check_norms(layers, geometry)
            if not sharded:
                core = _core.Optimizer(layers, geometry, collective=self._collective, warn=warn, **self._options)
        if sharded:
            parameters = {name: parameter for name, parameter, *_ in self._parameters()}
            return ShardedCore(layers, parameters, geometry, self._options, warn)
        if self._collective is not None:
            check_layers(self._collective, layers, {"geometry": geometry, **self._options})
        return core

    def _check_norms(self, layers: List[_core.Layer], geometry: _core.Geometry) -> None:
        """Checks the identities of norms written in Python, once for the same norms and layers."""
        norms = [rule["norm"] for rule in geometry.rules if not isinstance(rule["norm"], str)]
        about = (norms, [(layer.name, layer.role, layer.parameter.shape) for layer in layers])
        if norms and about != self.__dict__.get("_checked"):
            _core.check_norms(layers, geometry)
            self._checked = about

    def _install(self, core: Union[_core.Optimizer, ShardedCore]) -> None:
        for observer in self._observers:
            core.add_observer(observer)
        self._joined = {layer.name for layer in core.layers}
        self._core: Union[_core.Optimizer, ShardedCore] = core
        self._snapshot = Snapshot(self.param_groups)
        self._built = True

    def _follow_groups(self, steps: bool = False) -> None:
        """Makes a new core if a parameter was unfrozen or replaced, a group's role, norm, radius, ... changed, or the
        model was moved before the first step. `steps`: raises ValueError if it was moved later."""
        for index, group in enumerate(self.param_groups):
            check_keys(group, index)
        replaced = self._snapshot.replaced(self.param_groups)
        if replaced and self._observers:
            raise ValueError(
                f"{type(self).__name__}: a SmoothnessRecorder measures the parameters that were replaced in a group; "
                "replace them before creating the recorder"
            )
        unfrozen = any(x.requires_grad and name not in self._joined for name, x, *_ in self._parameters())
        moved = self._snapshot.moved(self.param_groups, self._joined)
        early = moved is not None and self.steps_taken == 0
        if replaced or unfrozen or early or self._snapshot.rerouted(self.param_groups):
            self._rebuild()
        elif moved is not None and steps:
            raise ValueError(
                f"parameters: {moved} after {self.steps_taken} steps; move a model before the first step, or call "
                "optimizer.load_state_dict(optimizer.state_dict()) to take the state along"
            )

    def _rebuild(self, also: Iterable[str] = ()) -> None:
        """Replaces the core by one for the current groups; existing parameters keep their state.

        Parameters named in `also` join it, frozen or not.
        """
        self._core.wait()  # a bad gradient of the last step would be forgotten with the core
        old = self._core.state()
        core = self._make_core(self._joined.union(also))
        with all_or_none(self._collective, "when groups change"):
            if self._observers and self._collective is not None:
                check_owners(self._core, core, type(self).__name__)
        fresh = core.state().tensors
        fresh.update((key, tensor) for key, tensor in old.tensors.items() if key in fresh)
        core.load_state(_core.OptimizerState(old.version, old.step, fresh))
        self._skipped += self._core.steps_skipped
        self._install(core)

    def _hand_on_settings(self, core: Union[_core.Optimizer, ShardedCore]) -> None:
        for index, group in enumerate(self.param_groups):
            core.set_group_radius_multiplier(index, number(group, "lr", index))
            own = group.get("momentum")
            momentum = self._default_momentum if own is None else number(group, "momentum", index)
            if momentum is not None:
                core.set_group_beta(index, self._beta(momentum))

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        """Adds a group. Its parameters start with fresh state; the others keep theirs."""
        if not isinstance(param_group, dict):
            raise TypeError("param_group must be a dict")
        count = sum(len(group["params"]) for group in self.param_groups)
        group = named_group(param_group, count)
        check_keys({**self.defaults, **group}, len(self.param_groups))
        super().add_param_group(group)
        if not self._built:
            return
        self._fill(self.param_groups[-1])
        try:
            self._rebuild()
        except Exception:
            self.param_groups.pop()
            raise

    @_not_traced
    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """Moves all layers that have a gradient; gradients do not change.

        With a process group a layer moves if any rank has a gradient of it; a missing gradient counts as zero.

        Raises NonFiniteGradient (a ValueError) on NaN or Inf, with nothing moved, and ValueError if a gradient does not
        match its parameter. When a GPU's kernels move all layers, the next step() or wait() reports a bad gradient.

        On a GPU the step is a CUDA graph of its own; inside torch.cuda.graph() it raises ValueError.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._follow_groups(steps=True)
        named = [(name, parameter) for name, parameter, *_ in self._parameters()]
        refuse_other_parameters(named, None if self._module is None else self._module(), self._collective is None)
        self._hand_on_settings(self._core)
        if self._clipping is not None:
            self._clipping.look(parameter.grad for _, parameter in named)
        self._core.step()
        return loss

    @property
    def state(self) -> LiveState:  # type: ignore[override]
        """The tensors of each parameter, as copies; with several ranks all of them ask together."""
        return LiveState(self)

    @state.setter
    def state(self, value: Any) -> None:
        # torch's constructor sets an empty one.
        if self.__dict__.get("_built"):
            raise AttributeError(f"{type(self).__name__}: 'state' cannot be replaced; use load_state_dict()")

    @property
    def geometry(self) -> _core.Geometry:
        """The rules in use, including those of groups; those of transformers' Conv1D as Linear's."""
        return self._geometry_of(self._layers(self._joined))

    def _geometry_of(self, layers: List[_core.Layer]) -> _core.Geometry:
        rules = [rule for index, group in enumerate(self.param_groups) for rule in self._rules_of(index, group)]
        geometry = _core.Geometry(rules + self._base.rules, self._base.momentum) if rules else self._base
        return without_frozen(geometry, self._names(), layers)

    def _rules_for(self, layers: List[_core.Layer], geometry: Optional[_core.Geometry] = None) -> _core.Geometry:
        """The rules in use, or those of `geometry`, for weights as they are stored."""
        geometry = geometry or self._geometry_of(layers)
        return with_transposed(geometry, layers, self._module_roles, self._options["orthogonalizer"])

    def _rules_of(self, index: int, group: Mapping[str, Any]) -> List[Dict[str, Any]]:
        """The rules that precede the others for the layers of a group."""
        own = any(group.get(key) is not None for key in RULE_KEYS)
        return rules_of_group(self._base.rules, index, group) if own else []

    @property
    def steps_taken(self) -> int:
        return self._core.steps_taken

    @property
    def steps_skipped(self) -> int:
        """Steps skipped because of a NaN or Inf gradient, with ``non_finite="skip"``."""
        return self._skipped + self._core.steps_skipped

    def routing_report(self) -> str:
        """The rule that each group of layers follows, as a table."""
        lrs = [float(group["lr"]) for group in self.param_groups]
        note = f"radii are multiplied by lr: {', '.join(f'{lr:g}' for lr in lrs)}\n" if set(lrs) != {1.0} else ""
        layers = self._layers(self._joined)
        return self._rules_for(layers).routing_report(layers) + note

    def effective_radii(self) -> Dict[str, float]:
        """The radius (AdamW: learning rate) each layer moved by in its last step, ``lr`` and schedule included.

        A layer with several matrices has one entry per matrix, ``"qkv.weight[0]"``.
        """
        return dict(self._core.effective_radii())

    def state_bytes(self) -> int:
        """Bytes of momentum and of AdamW's moments on this process; with a process group, of the layers it owns."""
        return self._core.state_bytes()

    def wait(self) -> None:
        """On a GPU, waits for the last step; raises NonFiniteGradient if its gradients were bad."""
        self._core.wait()

    @torch.no_grad()
    def initialize(self, ball: float = 1.0, seed: int = 0) -> None:
        """Overwrites the parameters with random points of their norm balls, as Scion does."""
        self._refuse_dtensors("initialize", "call it before fully_shard()")
        layers = self._layers(self._joined)
        _core.initialize(layers, self._rules_for(layers), ball, seed)

    @torch.no_grad()
    def start_on_spheres(self, seed: int = 0) -> None:
        """Brings the layers whose rules have a sphere onto it; zeros become random points of it. Call it before training:
        the first step does the same for all but zeros, but its gradient is that of weights off the sphere."""
        self._refuse_dtensors("start_on_spheres", "call it before fully_shard()")
        _core.start_on_spheres(self._core.layers, self._rules_for(self._core.layers), seed)

    def add_observer(self, observer: Any) -> None:
        self._refuse_dtensors("add_observer", "observers see whole layers")
        self._core.add_observer(observer)
        self._observers.append(observer)

    def __repr__(self) -> str:
        return f"{type(self).__name__}\n{self.routing_report()}"

