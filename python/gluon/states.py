"""State dicts: tensors by name and kind, groups with names for parameters."""

from typing import Any, Container, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import torch

from . import _core
from .groups import KEYS, NOTES


# Kinds of tensors, as this library calls them and as torch's optimizers do.
_TORCHS_KINDS = {
    "momentum": "momentum_buffer",
    "adamw.first": "exp_avg",
    "adamw.second": "exp_avg_sq",
    "adamw.steps": "step",
}
# No optimizer of torch has the last one; public NorMuons call theirs so, in units of their own.
_KINDS_BY_INDEX = {**_TORCHS_KINDS, "normalize.second": "second_momentum_buffer"}
_OUR_KINDS = {theirs: ours for ours, theirs in _KINDS_BY_INDEX.items()}


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
    fixed = ("params", "param_names", "role", "norm", "normalize", "split")
    unknown = (*fixed, *_foreign(group))
    return {key: value for key, value in group.items() if key not in unknown}


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


def has_torchs_layout(state_dict: Mapping[str, Any]) -> bool:
    """Whether the state refers to parameters by position, or by the names that torch's tools give to the positions."""
    groups = state_dict.get("param_groups") or []
    return any("param_names" in group or any(isinstance(x, int) for x in group["params"]) for group in groups)


def is_ours(state_dict: Mapping[str, Any]) -> bool:
    """Whether a state in torch's layout was saved by a Gluon optimizer. torch's tools drop its "gluon", and the groups
    of other optimizers have keys that ours do not have."""
    groups = state_dict["param_groups"]
    return "gluon" in state_dict or all("param_names" in group and not _foreign(group) for group in groups)


def _foreign(group: Mapping[str, Any]) -> List[str]:
    return [key for key in group if key not in KEYS and key not in NOTES and not key.startswith("_")]


def torchs_entry(kinds: Mapping[str, torch.Tensor], step: int) -> Dict[str, torch.Tensor]:
    """What torch's optimizers would call the tensors of one parameter. Each entry counts the steps, as torch's tools
    keep nothing of a state but the entries and the groups."""
    entry = {_KINDS_BY_INDEX[kind]: tensor for kind, tensor in kinds.items()}
    # torch's AdamW adds 1.0 in place to its own count.
    entry["step"] = entry["step"].to(torch.float32) if "step" in entry else torch.tensor(step)
    return entry


def _our_kinds(entry: Mapping[str, torch.Tensor]) -> Dict[str, torch.Tensor]:
    """The inverse of torchs_entry(). Names of ours stay."""
    counts = any(_OUR_KINDS.get(kind, kind) == "adamw.first" for kind in entry)
    return {_OUR_KINDS.get(kind, kind): tensor for kind, tensor in entry.items() if kind != "step" or counts}


def with_indices(state_dict: Mapping[str, Any], layers: Container[str]) -> Dict[str, Any]:
    """A state by name in torch's layout, with an entry for each of `layers`. Each group also has "param_names", which
    with_names() reads."""
    numbers: Dict[str, int] = {}
    groups = []
    for group in state_dict["param_groups"]:
        names, first = group["params"], len(numbers)
        numbers.update((name, first + place) for place, name in enumerate(names))
        groups.append({**group, "params": [numbers[name] for name in names], "param_names": list(names)})
    step = state_dict["gluon"]["step"]
    state = {
        number: torchs_entry(state_dict["state"].get(name, {}), step)
        for name, number in numbers.items()
        if name in layers
    }
    return {**state_dict, "state": state, "param_groups": groups}


def with_names(state_dict: Mapping[str, Any]) -> Dict[str, Any]:
    """The inverse of with_indices(). Raises ValueError if the state was changed in between."""
    names: Dict[Any, str] = {}
    groups = []
    for group in state_dict["param_groups"]:
        if len(group.get("param_names", ())) != len(group["params"]):
            raise ValueError("state_dict: a group by indices needs as many 'param_names' as 'params'")
        names.update(zip(group["params"], group["param_names"]))
        groups.append({**group, "params": list(group["param_names"])})
    state = {}
    for number, entry in state_dict["state"].items():
        if number not in names:
            raise ValueError(f"state_dict: no group has the parameter {number}")
        state[names[number]] = _our_kinds(entry)
    steps = [int(entry["step"]) for entry in state_dict["state"].values() if "step" in entry]
    about = state_dict.get("gluon", {"version": _core.state_version, "step": max(steps, default=0)})
    return {**state_dict, "gluon": about, "state": state, "param_groups": groups}


def of_torch(
    state_dict: Mapping[str, Any], layers: Sequence[Tuple[str, torch.Size]], ours: Mapping[str, torch.Tensor]
) -> Tuple[Dict[str, torch.Tensor], Optional[int]]:
    """Entries of this library's state from one of torch's whose parameters are `layers`, and the steps it counts.

    `ours` has the entries that the optimizer keeps now.
    """
    for group in state_dict["param_groups"]:
        if "dampening" in group:
            raise ValueError(
                "state_dict: it was not saved by a Gluon optimizer, Muon, AdamW or Adam: SGD's momentum is a sum of "
                "gradients and no mean"
            )
        if group.get("maximize"):
            raise ValueError("state_dict: it was saved by an optimizer that maximizes; its momentum points uphill")
    numbers = [number for group in state_dict["param_groups"] for number in group["params"]]
    tensors: Dict[str, torch.Tensor] = {}
    steps = None
    for number, (name, shape) in zip(numbers, layers):
        entry = state_dict["state"].get(number)
        if not entry:
            continue  # it never had a gradient
        if "step" in entry:
            steps = max(steps or 0, int(entry["step"]))
        for key, tensor in _kept_by(name, ours, entry, f"parameter {number}, here '{name}',"):
            if not key.startswith("adamw.steps/") and tensor.shape != shape:
                raise ValueError(
                    f"state_dict: parameter {number}, here '{name}', has a state of shape {list(tensor.shape)}, "
                    f"expected {list(shape)}"
                )
            tensors[key] = tensor
    return tensors, steps


def _kept_by(
    name: str, ours: Mapping[str, torch.Tensor], entry: Mapping[str, Any], what: str
) -> Iterator[Tuple[str, torch.Tensor]]:
    """What the layer keeps of torch's `entry`: momentum, AdamW's moments, or nothing."""
    unknown = [kind for kind in entry if kind not in _TORCHS_KINDS.values()]
    if unknown:
        raise ValueError(f"state_dict: {what} has '{unknown[0]}'; allowed are {', '.join(_TORCHS_KINDS.values())}")
    if f"momentum/{name}" in ours:
        # AdamW's first moment is the mean of gradients that momentum is.
        momentum = entry.get("momentum_buffer", entry.get("exp_avg"))
        if momentum is None:
            raise ValueError(f"state_dict: {what} has neither momentum_buffer nor exp_avg")
        yield f"momentum/{name}", momentum
    elif f"adamw.first/{name}" in ours:
        missing = [kind for kind in ("exp_avg", "exp_avg_sq", "step") if kind not in entry]
        if missing:
            raise ValueError(f"state_dict: {what} is left to AdamW, and its state has no {missing[0]}")
        yield f"adamw.first/{name}", entry["exp_avg"]
        yield f"adamw.second/{name}", entry["exp_avg_sq"]
        yield f"adamw.steps/{name}", torch.as_tensor(entry["step"])
