"""What a constructor says about arguments that it does not have, or that mean something else elsewhere."""

import inspect
from typing import Any, Iterable, Mapping

from . import _core
from .warning import warn

# Arguments of other optimizers, and where their meaning is here.
_FUSED = "leave it out; the step is one call into C++, which handles equal layers together"
_ELSEWHERE = {
    "betas": "use momentum= for norms and adamw_betas= for layers left to AdamW",
    "capturable": _FUSED,
    "eps": "use adamw_eps= for layers left to AdamW",
    "foreach": _FUSED,
    "fused": _FUSED,
    "nesterov": "use momentum='nesterov(0.95)'",
    "ns_coefficients": "use orthogonalizer=, such as 'newton_schulz:5' or 'polar_express:5'",
    "weight_decay": "set it in a group: [{'params': model.named_parameters(), 'weight_decay': 0.1}]",
}


def unknown_argument(kind: type, name: str) -> TypeError:
    """The error for an argument that the constructor of `kind`, Gluon or a subclass, does not have."""
    allowed = []
    for base in kind.__mro__:
        if not base.__module__.startswith("gluon.") or "__init__" not in vars(base):
            continue
        for parameter in inspect.signature(base.__init__).parameters.values():  # type: ignore[misc]
            if parameter.kind is not parameter.VAR_KEYWORD and parameter.name not in ("self", *allowed):
                allowed.append(parameter.name)
    if kind.__name__ != "Gluon":
        allowed = [argument for argument in allowed if argument not in GEOMETRY]
    hint = _ELSEWHERE.get(name) if name not in allowed else None
    return TypeError(f"{kind.__name__}: unknown argument '{name}'; {hint or 'allowed are ' + ', '.join(allowed)}")


# Arguments of Gluon that its subclasses choose themselves.
GEOMETRY = ("preset", "radius", "geometry", "steps")


def refuse_geometry(kind: type, options: Mapping[str, Any]) -> None:
    for name in GEOMETRY:
        if name in options:
            raise unknown_argument(kind, name)


# Between the learning rates that people pass from habit (AdamW's 3e-4, Muon's 0.02, SGD's 0.05) and a factor.
_HABIT = 0.1


def hint_at_lr(groups: Iterable[Mapping[str, Any]], base: _core.Geometry) -> None:
    """Warns, once, of a group whose lr scales the radii of a preset down to nothing."""
    for group in groups:
        lr = float(group["lr"])
        if 0 < lr < _HABIT and group.get("radius") is None:
            rule = base.rules[0]
            key = rule.get("role", "all")
            warn(
                f"lr = {lr:g} multiplies the preset's radii ({key} {rule['radius']}), so that layers hardly "
                f"move; leave lr at 1 and set radius={{'{key}': ...}}, which is what other optimizers call the "
                "learning rate",
            )
            return
