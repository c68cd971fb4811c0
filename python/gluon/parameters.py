"""Turns the parameters that a user passes into groups with names, and finds the role of each parameter."""

import warnings
from typing import Any, Dict, Iterable, List, Mapping, Tuple, Union

import torch

from . import _core

Parameters = Union[
    torch.nn.Module, Iterable[torch.Tensor], Iterable[Tuple[str, torch.Tensor]], Iterable[Dict[str, Any]]
]

# Keys of a rule that a parameter group may set for its layers.
RULE_KEYS = ("norm", "radius", "split", "weight_decay", "ball", "sphere")


def module_roles(module: torch.nn.Module) -> Dict[int, str]:
    """Roles known from module types, by the parameter's id. An embedding takes precedence over a head tied to it."""
    roles: Dict[int, str] = {}
    for part in module.modules():
        weight = getattr(part, "weight", None)
        if not isinstance(weight, torch.Tensor):
            continue
        if isinstance(part, torch.nn.modules.conv._ConvTransposeNd):
            roles[id(weight)] = "transposed"
        elif isinstance(part, torch.nn.modules.conv._ConvNd):
            roles[id(weight)] = "conv"
        elif isinstance(part, (torch.nn.Embedding, torch.nn.EmbeddingBag)):
            roles[id(weight)] = "embedding"
    return roles


def parameter_groups(parameters: Parameters) -> Tuple[List[Dict[str, Any]], Dict[str, str]]:
    """torch.optim's groups, each with "params" and "param_names" of equal length; and roles known from module types, by
    name.

    Parameters without a name are named by their position, with a warning that their roles are guesses.
    """
    if isinstance(parameters, torch.Tensor):
        raise TypeError("parameters: expected an iterable of tensors, (name, tensor) pairs or groups, got a tensor")
    if isinstance(parameters, torch.nn.Module):
        roles = module_roles(parameters)
        named = list(parameters.named_parameters())
        return [group_of(named, 0)], {plain_name(name): roles[id(p)] for name, p in named if id(p) in roles}
    entries: List[Any] = list(parameters)
    if not entries:
        raise ValueError("parameters: expected at least one, got none")
    if any(isinstance(entry, dict) for entry in entries) and not all(isinstance(entry, dict) for entry in entries):
        raise TypeError("parameters: expected only groups or only parameters, got both")
    if not isinstance(entries[0], dict):
        return [group_of(entries, 0)], {}
    groups: List[Dict[str, Any]] = []
    for entry in entries:
        groups.append(named_group(entry, sum(len(group["params"]) for group in groups)))
    return groups, {}


def named_group(group: Mapping[str, Any], start: int) -> Dict[str, Any]:
    """A group dict with its "params" split into tensors and names."""
    params = group["params"]
    rest = {key: value for key, value in group.items() if key != "params"}
    if isinstance(params, torch.Tensor):
        params = [params]
    if isinstance(params, (set, frozenset)):
        raise TypeError("parameters: a set has no order; pass a list")
    names = rest.pop("param_names", None)
    entries = list(params) if names is None else list(zip(names, params))
    described = rest.get("role") is not None or rest.get("norm") is not None
    return {**rest, **group_of(entries, start, warn=not described)}


def plain_name(name: str) -> str:
    """The name without the parts that torch.compile, activation checkpointing and DistributedDataParallel add."""
    name = name.replace("_orig_mod.", "").replace("_checkpoint_wrapped_module.", "")
    return name[len("module.") :] if name.startswith("module.") else name


def group_of(entries: List[Any], start: int, warn: bool = True) -> Dict[str, Any]:
    """A group of tensors or (name, tensor) pairs; `start` is the number of the first one without a name."""
    named = [entry for entry in entries if isinstance(entry, (tuple, list))]
    if not named:
        if entries and warn:
            warnings.warn(
                "gluon: parameters have no names, so their roles are guessed from their shapes, and an embedding or a "
                "head looks like any other matrix. Pass model.named_parameters(), or groups with a 'role'.",
                stacklevel=5,
            )
        return {"params": entries, "param_names": [f"parameter.{start + i}" for i in range(len(entries))]}
    if len(named) != len(entries):
        raise ValueError("parameters: some have a name and some do not")
    return {"params": [tensor for _, tensor in entries], "param_names": [plain_name(str(name)) for name, _ in entries]}


def refuse_sharded(name: str, parameter: torch.Tensor) -> None:
    """Raises ValueError on a DTensor: it holds a part of the matrix, and the LMO needs the whole."""
    if getattr(parameter, "device_mesh", None) is not None:
        raise ValueError(f"parameters: '{name}' is sharded over a device mesh; every rank must hold whole layers")


def role_of(
    name: str,
    parameter: torch.Tensor,
    group: Mapping[str, Any],
    overrides: Mapping[str, str],
    by_module: Mapping[str, str],
) -> str:
    """The role from an override (glob -> role), the group, the module's type, or the name and shape, in this order."""
    for pattern, role in overrides.items():
        if _core.glob_match(pattern, name):
            return role
    if group.get("role") is not None:
        return group["role"]
    if by_module.get(name) == "transposed":
        raise ValueError(
            f"roles: '{name}' is a transposed convolution, stored as (in, out, ...), which no role flattens to "
            "(out, in ...); choose a role for it with roles={...}"
        )
    return by_module.get(name) or _core.infer_role(name, list(parameter.shape))


def without_frozen(geometry: _core.Geometry, names: Iterable[str], layers: List[_core.Layer]) -> _core.Geometry:
    """`geometry` without the rules whose pattern matches some of the parameters' names, but none of the layers."""
    frozen = set(names) - {layer.name for layer in layers}

    def is_for_frozen(rule: Mapping[str, Any]) -> bool:
        pattern = rule.get("pattern", "*")
        matched = any(_core.glob_match(pattern, layer.name) for layer in layers)
        return not matched and any(_core.glob_match(pattern, name) for name in frozen)

    rules = [rule for rule in geometry.rules if not is_for_frozen(rule)] if frozen and layers else []
    return _core.Geometry(rules, geometry.momentum) if rules else geometry


def geometry_of_groups(geometry: _core.Geometry, groups: List[Dict[str, Any]]) -> _core.Geometry:
    """`geometry`, preceded by rules for groups that set "norm", "radius", "weight_decay", ... for their layers."""
    rules = []
    for index, group in enumerate(groups):
        own = {key: group[key] for key in RULE_KEYS if group.get(key) is not None}
        if own:
            rules += [{**rule, **own, "group": index} for rule in geometry.rules]
    return _core.Geometry(rules + geometry.rules, geometry.momentum) if rules else geometry
