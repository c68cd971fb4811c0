"""Which layers step on their shards alone, and how a part of the layers gets the rules that it has among all."""

import re
from typing import Any, Dict, Iterable, List, Mapping, Sequence

from . import _core

# Norms whose LMO takes each row by itself, perhaps scaled.
_BY_ROWS = re.compile(r"(?:scaled\(.*,)?(?:max_entry|rows)\)*")
_STACKS = ("hidden", "embedding", "head")  # roles whose leading dimensions count matrices


def steps_alone(layer: _core.Layer, rule: Mapping[str, Any], matrices: Sequence[Any]) -> bool:
    """Whether the shards of a layer, cut between rows of dimension 0, can step without each other."""
    if rule["norm"] == "adamw" or (layer.role in _STACKS and layer.parameter.dim() > 2):
        return True
    # A radius rule or a sphere needs lengths of the whole matrix.
    constant = isinstance(rule["radius"], float) and "sphere" not in rule and len(matrices) == 1
    return constant and isinstance(rule["norm"], str) and bool(_BY_ROWS.fullmatch(rule["norm"]))


class Routing:
    """The rules of all layers, and how a part of the layers gets the same ones."""

    def __init__(self, layers: List[_core.Layer], geometry: _core.Geometry, orthogonalizer: str) -> None:
        self._plan = _core.route(layers, geometry, orthogonalizer)
        self._rules, self._momentum, self._orthogonalizer = geometry.rules, geometry.momentum, orthogonalizer
        self.matrices = self._plan.matrices

    def rule(self, index: int) -> Dict[str, Any]:
        return self._rules[self._plan.rules[index]]

    def geometry(self, indices: Iterable[int]) -> _core.Geometry:
        """The rules that these layers have. Each has a layer, so its conditions on other layers hold."""
        used = sorted({self._plan.rules[index] for index in indices})
        conditions = ("beside", "without")
        rules = [{k: v for k, v in self._rules[rule].items() if k not in conditions} for rule in used]
        return _core.Geometry(rules, self._momentum)

    def of_shards(self, indices: List[int], shards: List[_core.Layer]) -> _core.Geometry:
        """geometry() with the width factors of the whole layers."""
        geometry = self.geometry(indices)
        found = _core.route(shards, geometry, self._orthogonalizer).matrices
        for index, shard, ((_, norm), *_) in zip(indices, shards, found):
            ((_, whole), *_) = self.matrices[index]
            if norm != whole:
                selectors = ("role", "rank", "beside", "without", "group")
                rule = {key: value for key, value in self.rule(index).items() if key not in selectors}
                geometry = geometry.with_first({**rule, "pattern": shard.name, "norm": whole})
        return geometry

    def owners(self, indices: List[int], layers: List[_core.Layer], ranks: int) -> List[int]:
        return _core.route(layers, self.geometry(indices), self._orthogonalizer, ranks).owners if layers else []
