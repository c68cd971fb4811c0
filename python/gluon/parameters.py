"""Turns the parameters that a user passes into groups with names, and finds the role of each parameter."""

from typing import Any, Container, Dict, Iterable, List, Mapping, Optional, Tuple, Union

import torch

from . import _core
from .conv1d import TRANSPOSED, is_conv1d
from .shards import whole_of
from .warning import warn

Parameters = Union[
    torch.nn.Module, Iterable[torch.Tensor], Iterable[Tuple[str, torch.Tensor]], Iterable[Dict[str, Any]]
]

# Keys of a rule that a parameter group may set for its layers.
RULE_KEYS = ("norm", "normalize", "radius", "split", "weight_decay", "decay", "ball", "sphere")


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
        elif is_conv1d(part):
            roles.setdefault(id(weight), TRANSPOSED)
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
    if "params" not in group:
        raise ValueError(f"parameters: a group has no 'params', only {', '.join(map(str, group)) or 'nothing'}")
    params = group["params"]
    rest = {key: value for key, value in group.items() if key != "params"}
    if isinstance(params, torch.Tensor):
        params = [params]
    if isinstance(params, (set, frozenset)):
        raise TypeError("parameters: a set has no order; pass a list")
    names = rest.pop("param_names", None)
    entries = list(params) if names is None else list(zip(names, params))
    described = rest.get("role") is not None or rest.get("norm") is not None
    if not described:
        refuse_unnamed_matrices(entries)
    return {**rest, **group_of(entries, start, described)}


def refuse_unnamed_matrices(entries: Iterable[Any]) -> None:
    """Frameworks such as Hugging Face's Trainer divide a model's parameters into groups and drop the names, and with
    them what tells an embedding or a head from a hidden layer."""
    for position, entry in enumerate(entries):
        if isinstance(entry, torch.Tensor) and entry.dim() == 2:
            raise ValueError(
                f"parameters: number {position} of a group is a matrix of shape {list(entry.shape)} without a name, so "
                "that it may be hidden, an embedding or a head; pass the model or model.named_parameters(), or give "
                "the group a 'role' (Hugging Face's Trainer: docs/python.md)"
            )


def plain_name(name: str) -> str:
    """The name without the parts that torch.compile, activation checkpointing and DistributedDataParallel add."""
    name = name.replace("_orig_mod.", "").replace("_checkpoint_wrapped_module.", "")
    return name[len("module.") :] if name.startswith("module.") else name


def group_of(entries: List[Any], start: int, described: bool = False) -> Dict[str, Any]:
    """A group of tensors or (name, tensor) pairs; `start` is the number of the first one without a name.
    `described`: nothing is guessed from shapes."""
    named = [entry for entry in entries if isinstance(entry, (tuple, list))]
    if not named:
        if entries and not described:
            warn(
                "parameters have no names, so their roles are guessed from their shapes, and an embedding or a "
                "head looks like any other matrix. Pass model.named_parameters(), or groups with a 'role'.",
            )
        return {"params": entries, "param_names": [f"parameter.{start + i}" for i in range(len(entries))]}
    if len(named) != len(entries):
        raise ValueError("parameters: some have a name and some do not")
    return {"params": [tensor for _, tensor in entries], "param_names": [plain_name(str(name)) for name, _ in entries]}


def layers_of(
    entries: Iterable[Tuple[str, torch.Tensor, int, Mapping[str, Any]]],
    overrides: Mapping[str, str],
    by_module: Mapping[str, str],
    joined: Container[str],
) -> List[_core.Layer]:
    """The layers of the parameters that train or are in `joined`; entries are name, parameter, number of group, group.
    A DTensor's layer has a tensor without memory, in the shape of the whole.

    A role comes from an override (glob -> role), the group, the module's type, or the name and shape, in this order.
    """
    layers, given, trained = [], [], []
    for name, parameter, index, group in entries:
        if hasattr(parameter, "ds_id"):
            raise ValueError(
                f"parameters: '{name}' belongs to DeepSpeed's ZeRO stage 3, which leaves each rank a flat part of it "
                "without matrices; shard the model by fully_shard() instead"
            )
        told = next((role for pattern, role in overrides.items() if _core.glob_match(pattern, name)), group.get("role"))
        known = by_module.get(name)
        role = told or (known if known != TRANSPOSED else None) or _core.infer_role(name, list(parameter.shape))
        trains = parameter.requires_grad or name in joined
        if role == "transposed":
            if trains:
                raise ValueError(
                    f"roles: '{name}' is a transposed convolution, stored as (in, out, ...), which no role flattens to "
                    "(out, in ...); choose a role for it with roles={...}"
                )
            continue
        layers.append(_core.Layer(name, whole_of(name, parameter, trains), role, index))
        given.append(told is not None or known == TRANSPOSED)
        trained.append(trains)
    # Frozen layers are looked at as well, so that no role changes when one is unfrozen.
    head = _core.find_head(layers)
    if head is not None and not given[head]:
        layer = layers[head]
        layers[head] = _core.Layer(layer.name, layer.parameter, "head", layer.group)
    return [layer for layer, trains in zip(layers, trained) if trains]


def refuse_other_parameters(
    named: List[Tuple[str, torch.Tensor]], module: Optional[torch.nn.Module], alone: bool
) -> None:
    """Raises ValueError if other parameters than the optimizer's seem to train: those that `module` has now, or that
    the model of a distributed run has. `alone`: gradients of other ranks do not count."""
    idle = {name: parameter for name, parameter in named if parameter.requires_grad and parameter.grad is None}
    if not idle:
        return
    for name, parameter in () if module is None else module.named_parameters():
        name = plain_name(name)
        if idle.get(name, parameter) is not parameter and parameter.grad is not None:
            raise ValueError(
                f"parameters: the model has another '{name}' than when the optimizer was made; make it after "
                "fully_shard()"
            )
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    if alone and distributed and all(parameter.grad is None for _, parameter in named):
        raise ValueError(
            f"parameters: none has a gradient, '{next(iter(idle))}' the first; if fully_shard() replaced the model's "
            "parameters, make the optimizer after it"
        )


def check_patterns(overrides: Mapping[str, str], names: Iterable[str]) -> None:
    """Raises ValueError on a pattern of `overrides` that gives no parameter its role."""
    names = list(names)
    deciding = {next((pattern for pattern in overrides if _core.glob_match(pattern, name)), None) for name in names}
    for pattern in overrides:
        if not any(_core.glob_match(pattern, name) for name in names):
            raise ValueError(f"roles: no parameter matches '{pattern}'")
        if pattern not in deciding:
            raise ValueError(f"roles: '{pattern}' decides nothing, because earlier patterns match all that it matches")


def without_frozen(geometry: _core.Geometry, names: Iterable[str], layers: List[_core.Layer]) -> _core.Geometry:
    """`geometry` without the rules whose pattern matches some of the parameters' names, but none of the layers."""
    frozen = set(names) - {layer.name for layer in layers}

    def is_for_frozen(rule: Mapping[str, Any]) -> bool:
        pattern = rule.get("pattern", "*")
        matched = any(_core.glob_match(pattern, layer.name) for layer in layers)
        return not matched and any(_core.glob_match(pattern, name) for name in frozen)

    rules = [rule for rule in geometry.rules if not is_for_frozen(rule)] if frozen and layers else []
    return _core.Geometry(rules, geometry.momentum) if rules else geometry


def rules_of_group(rules: Iterable[Mapping[str, Any]], index: int, group: Mapping[str, Any]) -> List[Dict[str, Any]]:
    """`rules` for the layers of group number `index`, with the group's own "norm", "radius", "weight_decay", ..."""
    own = {key: group[key] for key in RULE_KEYS if group.get(key) is not None}
    if own.get("decay") is not None and not own.get("weight_decay"):
        own.pop("weight_decay", None)  # the 0 of gluon.Muon's groups
    # A split and a normalisation are for the group's matrices; AdamW's layers among them have none.
    entries = {key: value for key, value in own.items() if key not in ("split", "normalize") or "norm" in own}
    # Both are the rule's decay: what the group says replaces either.
    decays = {"weight_decay", "decay"} if "weight_decay" in own or "decay" in own else set()
    kept = [{key: value for key, value in rule.items() if key not in decays} for rule in rules]
    return [{**rule, **(entries if rule["norm"] == "adamw" else own), "group": index} for rule in kept]


def _radii(preset: str, radius: Any, steps: Optional[int]) -> Dict[str, float]:
    """The radii of a preset by key."""
    if radius == "auto" and preset != "sphere":
        raise ValueError(f"radius: preset {preset} has no law for 'auto', only sphere has one")
    if isinstance(radius, str) and radius != "auto":
        raise ValueError(f"radius: expected a number, a dict or 'auto', got '{radius}'")
    if steps is not None and preset != "sphere":
        raise ValueError(f"steps: only preset sphere takes its radii from them, got preset {preset}")
    if radius is None or radius == "auto":
        radii = {}
    else:
        radii = dict(radius) if isinstance(radius, Mapping) else {"all": float(radius)}
    return radii if steps is None else {**radii, "steps": steps}


def geometry_from(
    preset: Optional[str], radius: Union[None, float, str, Mapping[str, float]], geometry: Any, steps: Optional[int]
) -> _core.Geometry:
    """The rules of Gluon's arguments: a preset's, preceded by those of `geometry`, or `geometry` alone."""
    if geometry is not None and not isinstance(geometry, _core.Geometry):
        geometry = _core.Geometry([dict(rule) for rule in geometry])
    if geometry is not None and preset is None:
        if radius is not None:
            raise ValueError("radius: only for presets; the rules of a geometry have their own radii")
        if steps is not None:
            raise ValueError("steps: only for preset sphere; the rules of a geometry have their own radii")
        return geometry
    name = preset or ("sphere" if isinstance(radius, str) and radius == "auto" else "unscion")
    base = _core.preset(name, _radii(name, radius, steps))
    return base if geometry is None else _core.Geometry(geometry.rules + base.rules, base.momentum)
