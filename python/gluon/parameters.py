"""Parameters as people pass them -> groups with names, and the role of each parameter."""

import warnings
from typing import Any, Dict, Iterable, List, Mapping, Tuple, Union

import torch

from . import _core

Parameters = Union[
    torch.nn.Module, Iterable[torch.Tensor], Iterable[Tuple[str, torch.Tensor]], Iterable[Dict[str, Any]]
]

# What a group may say about its layers: the keys of a rule that are no selectors.
RULE_KEYS = ("norm", "radius", "split", "weight_decay", "ball")


def module_roles(module: torch.nn.Module) -> Dict[int, str]:
    """Roles that module types give away, by the parameter's id. An embedding wins over a head tied to it."""
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
    """Groups as torch.optim has them, each with "params" and "param_names" of the same length; and the roles that are
    known from module types, by name.

    Parameters without a name are called by their place; a warning says that their roles are guesses.
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
        raise TypeError("parameters: expected groups alone, or parameters alone, got both")
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
    said = rest.get("role") is not None or rest.get("norm") is not None
    return {**rest, **group_of(entries, start, warn=not said)}


def plain_name(name: str) -> str:
    """The name without the words that torch.compile, activation checkpointing and DistributedDataParallel put in."""
    name = name.replace("_orig_mod.", "").replace("_checkpoint_wrapped_module.", "")
    return name[len("module.") :] if name.startswith("module.") else name


def group_of(entries: List[Any], start: int, warn: bool = True) -> Dict[str, Any]:
    """Tensors or (name, tensor) pairs as a group; `start` numbers those without a name."""
    named = [entry for entry in entries if isinstance(entry, (tuple, list))]
    if not named:
        if entries and warn:
            warnings.warn(
                "gluon: parameters without names; their roles are guessed from their shapes, an embedding or a head "
                "looks like any other matrix. Pass model.named_parameters(), or groups with a 'role'.",
                stacklevel=5,
            )
        return {"params": entries, "param_names": [f"parameter.{start + i}" for i in range(len(entries))]}
    if len(named) != len(entries):
        raise ValueError("parameters: some have a name and some have not")
    return {"params": [tensor for _, tensor in entries], "param_names": [plain_name(str(name)) for name, _ in entries]}


def refuse_sharded(name: str, parameter: torch.Tensor) -> None:
    """A DTensor holds a part of the matrix, and the LMO needs all of it."""
    if getattr(parameter, "device_mesh", None) is not None:
        raise ValueError(f"parameters: '{name}' is sharded over a device mesh; layers have to be whole on every rank")


def role_of(
    name: str,
    parameter: torch.Tensor,
    group: Mapping[str, Any],
    overrides: Mapping[str, str],
    by_module: Mapping[str, str],
) -> str:
    """By an override (glob -> role), the group, the module's type, or the name and shape."""
    for pattern, role in overrides.items():
        if _core.glob_match(pattern, name):
            return role
    if group.get("role") is not None:
        return group["role"]
    if by_module.get(name) == "transposed":
        raise ValueError(
            f"roles: '{name}' is a transposed convolution, stored as (in, out, ...), which no role flattens as "
            "(out, in ...); say with roles={...} what it should count as"
        )
    return by_module.get(name) or _core.infer_role(name, list(parameter.shape))


def geometry_of_groups(geometry: _core.Geometry, groups: List[Dict[str, Any]]) -> _core.Geometry:
    """`geometry`, with what groups say about their own layers ("norm", "radius", "weight_decay", ...) before it."""
    rules = []
    for index, group in enumerate(groups):
        said = {key: group[key] for key in RULE_KEYS if group.get(key) is not None}
        if said:
            rules += [{**rule, **said, "group": index} for rule in geometry.rules]
    return _core.Geometry(rules + geometry.rules, geometry.momentum) if rules else geometry
