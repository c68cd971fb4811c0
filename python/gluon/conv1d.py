"""GPT-2's layers in Hugging Face's transformers, of the class Conv1D, store their weight as (in, out), the transpose of
torch.nn.Linear's. Rules mean Linear's: m outputs, n inputs, and blocks of query, key and value among the rows. Where
the optimizer sees the module, it exchanges rows and columns in the rules of these layers.
"""

import re
from typing import Any, Dict, List, Mapping

import torch

from . import _core
from .warning import warn

# The role of such weights among those known from modules; what else they are, their names tell.
TRANSPOSED = "conv1d"

_EXCHANGED = {"m": "n", "n": "m", "rows": "columns", "columns": "rows"}


def is_conv1d(module: torch.nn.Module) -> bool:
    """By its name, as transformers may be missing. fully_shard() makes a class of its own that inherits."""
    if all(kind.__name__ != "Conv1D" for kind in type(module).__mro__):
        return False
    weight = getattr(module, "weight", None)
    return isinstance(weight, torch.Tensor) and weight.dim() == 2 and weight.shape[1] == getattr(module, "nf", None)


def _exchange(text: str) -> str:
    """A norm or split of a matrix as that of its transpose: scaled(sqrt(n/m),rows) -> scaled(sqrt(m/n),columns)."""
    exchanged = re.sub(r"\b(m|n|rows|columns)\b", lambda word: _EXCHANGED[word[0]], text)
    return exchanged.replace("max(n,m)", "max(m,n)").replace("min(n,m)", "min(m,n)")


def _transposed(rule: Dict[str, Any]) -> Dict[str, Any]:
    norm, split = rule["norm"], {"qkv": "rows:3"}.get(rule.get("split", ""), rule.get("split"))
    exchanged = {**rule, "norm": _exchange(norm) if isinstance(norm, str) else norm}
    if split is not None:
        exchanged["split"] = _exchange(split)
    return exchanged


def with_transposed(
    geometry: _core.Geometry, layers: List[_core.Layer], roles: Mapping[str, str], orthogonalizer: str
) -> _core.Geometry:
    """`geometry`, preceded by rules for layers of the class Conv1D, one for all blocks of a model where names allow it.
    `roles` are those known from modules."""
    if not any(_is_ours(layer, roles) for layer in layers):
        return geometry
    linear = [_as_linear(layer) if _is_ours(layer, roles) else layer for layer in layers]  # which a split fits
    numbers = _core.route(linear, geometry, orthogonalizer).rules
    found = {layer.name: number for layer, number in zip(layers, numbers) if _is_ours(layer, roles)}
    first: Dict[str, Dict[str, Any]] = {}
    for name, number in found.items():
        rule = geometry.rules[number]
        transposed = _transposed(rule)
        if transposed == rule:
            continue
        pattern = re.sub(r"\d+", "*", name)
        if any(found.get(x.name) != number for x in layers if _core.glob_match(pattern, x.name)):
            pattern = name
        selectors = ("role", "rank", "beside", "without", "group")
        first[pattern] = {**{k: v for k, v in transposed.items() if k not in selectors}, "pattern": pattern}
    return _core.Geometry([*first.values(), *geometry.rules], geometry.momentum) if first else geometry


def warn_of_rows(
    geometry: _core.Geometry, layers: List[_core.Layer], roles: Mapping[str, str], orthogonalizer: str
) -> None:
    """Warns of a normalisation of rows, which has no form for columns. `geometry` is with_transposed()'s."""
    if not any(_is_ours(layer, roles) for layer in layers):
        return
    for layer, number in zip(layers, _core.route(layers, geometry, orthogonalizer).rules):
        if _is_ours(layer, roles) and str(geometry.rules[number].get("normalize")).startswith("normuon"):
            warn(
                f"'{layer.name}' stores its weight as (in, out), so that normuon normalises its inputs and not "
                "its outputs, as in all layers of the class Conv1D; adamuon is the same for both",
            )
            return


def _is_ours(layer: _core.Layer, roles: Mapping[str, str]) -> bool:
    return roles.get(layer.name) == TRANSPOSED


def _as_linear(layer: _core.Layer) -> _core.Layer:
    return _core.Layer(layer.name, layer.parameter.detach().T, layer.role, layer.group)
