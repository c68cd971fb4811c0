"""Keys of parameter groups: which there are, and which have changed since the optimizer last read them."""

from typing import Any, Container, Dict, List, Mapping, Optional, Sequence, Tuple

import torch

from .parameters import RULE_KEYS
from .shards import layout_of

# What decides about layers; a change makes a new core. "lr" and "momentum" are handed on before every step.
ROUTING_KEYS = ("role", *RULE_KEYS)
KEYS = ("params", "param_names", "lr", "momentum", *ROUTING_KEYS)
# Notes that torch's schedulers and other tools leave in groups; keys that begin with "_" are notes too.
NOTES = (
    "base_momentum", "initial_lr", "lr_scale", "max_lr", "max_momentum", "min_lr", "name", "swa_lr",
)  # fmt: skip


def check_keys(group: Mapping[str, Any], index: int) -> None:
    """Raises ValueError on a key that would have no effect, and on a missing one."""
    for key in group:
        if key not in KEYS and key not in NOTES and not str(key).startswith("_"):
            raise ValueError(
                f"parameters: group {index} has the unknown key '{key}'; allowed are {', '.join(KEYS)}, and notes that "
                "begin with '_'"
            )
    for key in ("params", "param_names", "lr"):
        if key not in group:
            raise ValueError(f"parameters: group {index} has no '{key}'; add groups with add_param_group()")
    if len(group["params"]) != len(group["param_names"]):
        flat = group["params"][0] if len(group["params"]) == 1 else None
        if isinstance(flat, torch.Tensor) and flat.dim() == 1:
            raise ValueError(
                f"parameters: group {index} has one flat tensor in the place of {len(group['param_names'])} "
                "parameters, as DeepSpeed's ZeRO makes it; it has no matrices any more. Shard the model by fully_shard() "
                "instead"
            )
        raise ValueError(
            f"parameters: group {index} has {len(group['params'])} parameters for {len(group['param_names'])} names; "
            "replace parameters in their places, and add others with add_param_group()"
        )


def number(group: Mapping[str, Any], key: str, index: int) -> float:
    """A number, or a tensor that holds one. Raises ValueError otherwise."""
    try:
        return float(group[key])
    except (TypeError, ValueError):
        raise ValueError(f"parameters: '{key}' of group {index} must be a number, got {group[key]!r}") from None


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, torch.Tensor) else value


def _routing(groups: Sequence[Mapping[str, Any]]) -> List[Dict[str, Any]]:
    return [{key: _plain(group[key]) for key in ROUTING_KEYS if group.get(key) is not None} for group in groups]


def _kind(parameter: torch.Tensor) -> Tuple[torch.dtype, torch.device]:
    return parameter.dtype, parameter.device


class Snapshot:
    """What the core was made of: the parameters, names and routing keys of all groups."""

    def __init__(self, groups: Sequence[Mapping[str, Any]]) -> None:
        self.parameters: List[List[torch.Tensor]] = [list(group["params"]) for group in groups]
        self.names: List[List[str]] = [list(group["param_names"]) for group in groups]
        self.routing = _routing(groups)
        self._kinds = {id(x): _kind(x) for parameters in self.parameters for x in parameters}

    def replaced(self, groups: Sequence[Mapping[str, Any]]) -> bool:
        """Whether the groups have other parameters. Raises ValueError where momentum would not fit them."""
        regrouped = found = len(groups) != len(self.parameters)
        for index, (group, olds, names) in enumerate(zip(groups, self.parameters, self.names)):
            if not regrouped and list(group["param_names"]) != names:
                raise ValueError(
                    f"parameters: 'param_names' of group {index} changed; the optimizer's state has the old names"
                )
            for name, old, new in zip(names, olds, group["params"]):
                if old is new:
                    continue
                if not isinstance(new, torch.Tensor) or old.shape != new.shape:
                    got = list(new.shape) if isinstance(new, torch.Tensor) else type(new).__name__
                    raise ValueError(
                        f"parameters: '{name}' of group {index} has the shape {list(old.shape)}, which its momentum "
                        f"has too, and was replaced by {got}"
                    )
                # A whole momentum is divided as the new parameter is; one in shards would have to be gathered.
                if layout_of(old) not in (None, layout_of(new)):
                    raise ValueError(
                        f"parameters: '{name}' of group {index} was replaced by one that is placed otherwise on its "
                        "ranks; make a new optimizer for them"
                    )
                found = True
        return found

    def rerouted(self, groups: Sequence[Mapping[str, Any]]) -> bool:
        """Whether a routing key has changed."""
        return _routing(groups) != self.routing

    def moved(self, groups: Sequence[Mapping[str, Any]], joined: Container[str]) -> Optional[str]:
        """What model.to() or model.double() did to the first of the parameters in `joined`; None if nothing."""
        for group in groups:
            for name, parameter in zip(group["param_names"], group["params"]):
                now = _kind(parameter)
                was = self._kinds.get(id(parameter), now)
                if was != now and name in joined:
                    return f"'{name}' was {was[0]} on {was[1]} and is {now[0]} on {now[1]}"
        return None
