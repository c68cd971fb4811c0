"""Muon and Scion with the arguments of the public ones. "lr" of a group is their lr: rules have radius 1 (Scion: the
scale), and lr multiplies it."""

from typing import Any, Dict, List, Mapping, Optional, Set, Tuple, Union

from . import _core
from .arguments import refuse_geometry
from .optimizer import Gluon
from .parameters import Parameters, rules_of_group


class Muon(Gluon):
    """Muon on hidden matrices and convolutions, AdamW on everything else, in one optimizer.

    Args:
        params: as for Gluon. As in MuonWithAuxAdam, groups may set ``use_muon`` and their own ``lr``, and groups with
            ``use_muon=False`` also ``betas`` and ``eps``.
        lr: learning rate of the matrices; torch's schedulers scale AdamW's rate by the same factor.
        weight_decay: decoupled decay of matrices; vectors and scalars do not decay. Groups have it too: one that sets
            it decays all its layers, as the public one does.
        momentum, nesterov: as in the public Muon.
        ns_steps: Newton-Schulz steps with the public coefficients. The default is ``polar_squares:9``, which is closer
            to U V^T with fewer products. ``orthogonalizer="bfloat16:newton_schulz:5"`` is torch.optim.Muon's.
        adjust_lr_fn: scale of U V^T for an m x n matrix: ``"original"`` sqrt(max(1, m/n)), ``"match_rms_adamw"``
            0.2 sqrt(max(m, n)), or ``"none"``.
        adamw_lr: learning rate of the other layers.
        options: those of Gluon, including ``process_group``.

    >>> import torch, gluon
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2))
    >>> print(gluon.Muon(model.named_parameters(), lr=0.02, adamw_lr=0.001).routing_report())
    group   norm                                 radius  layers    parameters
    hidden  scaled(1/sqrt(max(1,m/n)),spectral)  1            2            48
    *       adamw                                0.05         2            10
    radii are multiplied by lr: 0.02
    <BLANKLINE>
    """

    def __init__(
        self,
        params: Parameters,
        lr: float = 0.02,
        weight_decay: float = 0.0,
        momentum: float = 0.95,
        nesterov: bool = True,
        *,
        ns_steps: Optional[int] = None,
        adjust_lr_fn: Optional[str] = "original",
        adamw_lr: float = 3e-4,
        orthogonalizer: Optional[str] = None,
        **options: Any,
    ) -> None:
        refuse_geometry(type(self), options)
        if not lr > 0:
            raise ValueError(f"Muon: lr must be > 0 at the start, got {lr}; AdamW's rate is stored relative to it")
        if ns_steps is not None and orthogonalizer is not None:
            raise ValueError("Muon: ns_steps and orthogonalizer cannot be combined")
        if ns_steps is not None:
            orthogonalizer = f"newton_schulz:{ns_steps}"
        # 3e-4 / 0.02 is 0.015, not 0.014999999999999998.
        adamw_radius = float(f"{adamw_lr / lr:.15g}")
        geometry = _core.muon_geometry(1.0, adjust_lr_fn or "original", weight_decay, adamw_radius)
        self._hidden_norm, self._adamw_lr = geometry.rules[0]["norm"], adamw_lr
        self._inheriting: Set[int] = set()  # numbers of the groups whose weight decay is the constructor's
        self._group_defaults = {"weight_decay": weight_decay}
        params, adamw = _with_use_muon(params, self._hidden_norm, adamw_lr)
        for option, value in adamw.items():
            if options.setdefault(option, value) != value:
                raise ValueError(f"Muon: a group and {option}= disagree: {value} and {options[option]}")
        super().__init__(
            params,
            lr,
            geometry=geometry,
            momentum=f"{'nesterov' if nesterov else 'ema'}({momentum!r})",
            orthogonalizer=orthogonalizer or _core.default_orthogonalizer,
            **options,
        )

    _kept = Gluon._kept + ("_adamw_lr", "_hidden_norm", "_inheriting")
    _lr_is_a_factor = False

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        index, groups = len(self.param_groups), [param_group]
        if self._built:
            groups, adamw = _with_use_muon(groups, self._hidden_norm, self._adamw_lr)
            for option, value in adamw.items():
                if self._options[option] != value:
                    raise ValueError(
                        f"Muon: the added group's {option[len('adamw_'):]} are {value}, the optimizer's "
                        f"{self._options[option]}; layers left to AdamW share them"
                    )
        before = set(self._inheriting)
        (self._inheriting.discard if "weight_decay" in param_group else self._inheriting.add)(index)
        try:
            super().add_param_group(groups[0])
        except Exception:
            self._inheriting = before
            raise

    def _rules_of(self, index: int, group: Mapping[str, Any]) -> List[Dict[str, Any]]:
        if index not in self._inheriting:
            return super()._rules_of(index, group)
        own = {key: value for key, value in group.items() if key != "weight_decay"}
        decay = group.get("weight_decay")
        if decay is None or decay == self.defaults["weight_decay"]:
            return super()._rules_of(index, own)
        if group.get("decay") is not None:
            return super()._rules_of(index, group)
        # The rules of matrices are those with a role.
        rules = [{**rule, "weight_decay": decay} if "role" in rule else rule for rule in self._base.rules]
        return rules_of_group(rules, index, own)


def _with_use_muon(params: Parameters, norm: str, adamw_lr: float) -> Tuple[Parameters, Dict[str, Any]]:
    """Replaces "use_muon" of groups by a norm and a radius of 1, which lr multiplies. Also returns their AdamW options,
    which are the same for the whole optimizer."""
    if not isinstance(params, (list, tuple)) or not any(isinstance(g, dict) and "use_muon" in g for g in params):
        return params, {}
    groups, adamw = [], {}
    for group in params:
        group = dict(group)
        if group.pop("use_muon", True):
            groups.append({"norm": norm, "radius": 1.0, **group})
            continue
        for key in ("betas", "eps"):
            if key not in group:
                continue
            value = group.pop(key)
            value = tuple(value) if key == "betas" else value
            first = adamw.setdefault(f"adamw_{key}", value)
            if first != value:
                raise ValueError(f"Muon: groups left to AdamW must have the same {key}, got {first} and {value}")
        groups.append({"norm": "adamw", "radius": 1.0, "lr": adamw_lr, **group})
    return groups, adamw


def _scion_norm(name: str, kwargs: Mapping[str, Any]) -> Optional[str]:
    """Our name of a norm of the public Scion, for an m x n matrix; None for Auto."""
    normalized, transpose = kwargs.get("normalized"), kwargs.get("transpose", False)
    unless_told = normalized in (None, True)
    spectral = f"spectral(newton_schulz:{kwargs['steps']})" if "steps" in kwargs else "spectral"
    factor = "sqrt(m/n)" if unless_told else "sqrt(m)"
    along, m, n = ("rows", "n", "m") if transpose else ("columns", "m", "n")
    across, width = ("columns", "m") if transpose else ("rows", "n")
    norms = {
        "Auto": None,
        "SpectralConv": f"scaled(sqrt(kernel*n/m),{spectral})",
        "ColNorm": f"scaled({n if normalized else '1'}/sqrt({m}),{along})",
        "RowNorm": f"scaled(sqrt({width}),{across})" if unless_told else across,
        "BiasRMS": "scaled(1/sqrt(m),euclidean)",
        "Spectral": f"scaled(1/{f'max(1,{factor})' if kwargs.get('max') else factor},{spectral})",
        "Sign": "scaled(n,max_entry)" if unless_told else "max_entry",
    }
    if name not in norms:
        raise ValueError(f"Scion: unknown norm '{name}'; allowed are {', '.join(norms)}")
    return norms[name]


class Scion(Gluon):
    """Scion with the arguments of LIONS' Scion: X <- (1 - lr) X + lr scale lmo(M), without (1 - lr) if unconstrained.

    Args:
        params: as for Gluon. Groups may set ``norm``, ``norm_kwargs`` and ``scale`` as there.
        lr: gamma, shared by all layers.
        momentum: ONE MINUS the weight of the old momentum, as in the public code: 0.1 is what Gluon calls 0.9. It means
            the same in a group, so torch's OneCycleLR and CyclicLR need ``cycle_momentum=False``.
        norm, norm_kwargs: defaults for the groups; ``"Auto"`` uses the preset's norms by role.
        scale: rho; a number for all layers, or by role: ``{"hidden": 50, "embedding": 3000}``.
        unconstrained: without balls.
        options: those of Gluon, including ``process_group``.

    >>> import torch, gluon
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2))
    >>> optimizer = gluon.Scion(model.named_parameters(), lr=0.001, scale={"hidden": 50})
    >>> print(optimizer.routing_report())
    group   norm                         radius  layers    parameters
    hidden  scaled(sqrt(n/m),spectral)   50           2            48  ball 50
    *       scaled(1/sqrt(m),euclidean)  50           2            10  ball 50
    radii are multiplied by lr: 0.001
    <BLANKLINE>
    """

    _kept = Gluon._kept + ("_momentum", "_scion_defaults", "_unconstrained")
    _lr_is_a_factor = False
    # A scheduler that cycles momentum would write beta where one minus beta is read; without a default it refuses.
    _momentum_is_beta = False

    def __init__(
        self,
        params: Parameters,
        lr: float = 1e-3,
        momentum: float = 0.1,
        norm: str = "Auto",
        norm_kwargs: Optional[Mapping[str, Any]] = None,
        scale: Union[None, float, Mapping[str, float]] = None,
        unconstrained: bool = False,
        **options: Any,
    ) -> None:
        refuse_geometry(type(self), options)
        beta = self._beta(momentum)
        radii = dict(scale) if isinstance(scale, Mapping) else {}
        self._scion_defaults: Dict[str, Any] = {"norm": norm, "norm_kwargs": dict(norm_kwargs or {})}
        if scale is not None and not isinstance(scale, Mapping):
            self._scion_defaults["scale"] = float(scale)
        geometry = _core.preset("scion", {"gamma": 1.0, "conv_gamma": 1.0, **radii})
        if unconstrained:
            rules = [{key: value for key, value in rule.items() if key != "ball"} for rule in geometry.rules]
            geometry = _core.Geometry(rules, geometry.momentum)
        self._unconstrained = unconstrained
        self._momentum = momentum
        super().__init__(params, lr, geometry=geometry, momentum=beta, **options)

    def add_param_group(self, param_group: Dict[str, Any]) -> None:
        group = {**self._scion_defaults, **param_group}
        ours = _scion_norm(group.pop("norm"), group.pop("norm_kwargs"))
        if ours is not None:
            group["norm"] = ours
        if group.get("scale") is not None:
            group["radius"] = group.pop("scale")
            if not self._unconstrained:
                group["ball"] = group["radius"]
        super().add_param_group(group)

    def _momentum_setting(self, beta: float) -> float:
        return self._momentum  # 1 - beta would be rounded

    def _beta(self, setting: float) -> float:
        if not 0 < setting <= 1:
            raise ValueError(f"Scion: momentum, one minus the weight of the old one, must be in (0, 1], got {setting}")
        return 1 - setting
