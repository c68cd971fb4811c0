"""State dicts: tensors by name and kind, groups with names for parameters."""

from typing import Any, Dict, List, Mapping, Sequence

import torch

from .groups import KEYS, NOTES


def run_hooks(optimizer: torch.optim.Optimizer, kind: str, *arguments: Any) -> Any:
    """Runs the hooks that torch 2's register_*_hook() added; torch 1.13 has none. A result replaces the argument."""
    for hook in list(getattr(optimizer, f"_optimizer_{kind}_hooks", {}).values()):
        result = hook(optimizer, *arguments)
        if result is not None:
            arguments = (result,)
    return arguments[0] if arguments else None


def by_layer(tensors: Mapping[str, torch.Tensor]) -> Dict[str, Dict[str, torch.Tensor]]:
    """{"momentum/a": x} -> {"a": {"momentum": x}}."""
    state: Dict[str, Dict[str, torch.Tensor]] = {}
    for key, tensor in tensors.items():
        kind, name = key.split("/", 1)
        state.setdefault(name, {})[kind] = tensor
    return state


def by_kind(state: Mapping[str, Mapping[str, torch.Tensor]]) -> Dict[str, torch.Tensor]:
    return {f"{kind}/{name}": tensor for name, kinds in state.items() for kind, tensor in kinds.items()}


def group_state(group: Mapping[str, Any]) -> Dict[str, Any]:
    """A group for a state dict: names for parameters, and for norms that are objects, which torch.load() may refuse."""
    kept = {key: value for key, value in group.items() if key != "param_names"}
    kept["params"] = list(group["param_names"])
    if group.get("norm") is not None and not isinstance(group["norm"], str):
        kept["norm"] = group["norm"].name
    return kept


def loadable(group: Mapping[str, Any]) -> Dict[str, Any]:
    """What a group takes from a saved one."""
    fixed = ("params", "param_names", "role", "norm", "split")
    known = (*KEYS, *NOTES)
    return {key: value for key, value in group.items() if key not in fixed and (key in known or key.startswith("_"))}


def saved_groups(
    groups: Sequence[Mapping[str, Any]], state_dict: Mapping[str, Any]
) -> List[Mapping[str, Any]]:
    """The saved group of each of the optimizer's groups. Raises ValueError if they do not match."""
    for key in ("gluon", "state", "param_groups"):
        if key not in state_dict:
            raise ValueError(f"state_dict: no '{key}'; it was not saved by a Gluon optimizer")
    found = [_saved_group(group, state_dict["param_groups"]) for group in groups]
    if len(found) != len(state_dict["param_groups"]):
        raise ValueError(f"state_dict: has {len(state_dict['param_groups'])} groups, the optimizer {len(found)}")
    return found


def _saved_group(group: Mapping[str, Any], saved: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    names = set(group["param_names"])
    for candidate in saved:
        if set(candidate["params"]) == names:
            return candidate
    unknown = sorted(names - {name for candidate in saved for name in candidate["params"]})
    reason = f"'{unknown[0]}' is missing" if unknown else "the parameters are grouped differently"
    raise ValueError(f"state_dict: no group has the parameters of this optimizer's group: {reason}")
