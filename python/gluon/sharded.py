"""The optimizer's core where parameters are DTensors: on each rank one C++ optimizer for the shards that can step by
themselves, and one for the whole matrices that this rank owns.

    shards of gradient and parameter  ->  whole matrix at its owner  ->  Optimizer.step()  ->  shards of the parameter

AdamW, signs and rows work on shards alone, and a stack of matrices (experts) that is sharded between matrices does with
any norm. Every other layer has one owner, which keeps its momentum. Parameters travel with their gradients, since only
the shards know what was done to them between two steps, and the new ones travel back: a difference added to a shard
would be rounded once more.
"""

from typing import Any, Callable, Container, Dict, List, Mapping, Optional, Tuple

import torch

from . import _core
from .distributed import all_or_none, check_settings
from .exchange import start_exchange
from .shard_routing import Routing, steps_alone
from .shards import Part, layout_of, local_of, parts_of, ranks_of, rows_of

WINDOW_BYTES = 1 << 28  # of whole parameters that are sent together, a share of them by each rank


class _Shard:
    """A layer that steps on this rank alone, as the core's layer sees it."""

    def __init__(self, index: int, layer: _core.Layer, part: Part) -> None:
        self.index, self.part = index, part
        shape = part.shape()
        # An empty shard steps as one row of zeros, so that every rank counts the same steps.
        self._stands_in = 0 in shape
        held = torch.zeros_like(layer.parameter[:1]) if self._stands_in else local_of(part.parameter)
        self.layer = _core.Layer(layer.name, held, layer.role, layer.group)
        self.held = self.layer.parameter

    def take(self, gradient: Optional[torch.Tensor]) -> None:
        if self._stands_in:
            self.held.grad = None if gradient is None else torch.zeros_like(self.held)
            return
        local = local_of(self.part.parameter)
        if local.data_ptr() != self.held.data_ptr():  # moved, as by model.to()
            self.held.data = local
        self.held.grad = gradient

    def saved(self, tensor: torch.Tensor) -> torch.Tensor:
        """An entry of the core's state as the optimizer's; a count stays as it is."""
        if tensor.dim() == 0:
            return tensor
        return self.part.placed(tensor[:0] if self._stands_in else tensor)

    def loaded(self, tensor: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(self.held, dtype=tensor.dtype) if self._stands_in and tensor.dim() > 0 else tensor

    def places(self, matrices: int) -> Tuple[int, range]:
        """How many matrices the core's layer has, and which of the layer's `matrices` the first of them are."""
        if not self.part.sharded or matrices == 1:
            return matrices, range(matrices)
        of_each_row = matrices // self.part.parameter.shape[0]
        first, count = of_each_row * self.part.start, of_each_row * self.part.rows
        return max(count, of_each_row), range(first, first + count)


class _Owned:
    """A layer that its owner steps whole."""

    def __init__(self, index: int, layer: _core.Layer, part: Part, owner: int, mine: bool) -> None:
        self.index, self.part, self.owner, self.key = index, part, owner, f"momentum/{layer.name}"
        self.momentum_type = torch.promote_types(layer.parameter.dtype, torch.float32)
        self.whole: Optional[torch.Tensor] = None
        if mine:
            self.whole = torch.zeros_like(layer.parameter, memory_format=torch.contiguous_format)
            self._gradient = torch.zeros_like(self.whole)
            self.layer = _core.Layer(layer.name, self.whole, layer.role, layer.group)

    def wholes(self, moves: bool) -> List[torch.Tensor]:
        """Gradient and parameter, to be filled from the shards if the layer moves; only its owner has them."""
        if self.whole is None:
            return []
        self.whole.grad = self._gradient if moves else None
        return [self._gradient, self.whole]


class ShardedCore:
    """What Gluon asks of _core.Optimizer. `layers` have the shapes of the whole parameters, and `parameters` are these
    by name."""

    def __init__(
        self,
        layers: List[_core.Layer],
        parameters: Mapping[str, torch.Tensor],
        geometry: _core.Geometry,
        options: Mapping[str, Any],
        warn: Callable[[str], None],
    ) -> None:
        self.layers = layers
        parameters = {layer.name: parameters[layer.name] for layer in layers}
        self._ranks = ranks_of(parameters)
        self.beta, self._keeps_momentum = _core.momentum_of(geometry, options["momentum"])
        self._skips = options["non_finite"] == "skip"
        self.steps_taken = self.steps_skipped = 0
        with all_or_none(self._ranks, "when creating the optimizer"):
            routing = Routing(layers, geometry, options["orthogonalizer"])
            self._matrices = routing.matrices
            self._divide(routing, parts_of(parameters, self._ranks))
            self._check_rules(routing, options["adamw_clip"])
            shards, wholes = [shard.layer for shard in self._shards], [owned.layer for owned in self._mine()]
            self._alone = self._together = None
            if shards:
                rules = routing.of_shards([shard.index for shard in self._shards], shards)
                self._alone = _core.Optimizer(shards, rules, collective=None, warn=warn, **options)
            if wholes:
                rules = routing.geometry(owned.index for owned in self._mine())
                self._together = _core.Optimizer(wholes, rules, collective=None, warn=warn, **options)
        if self._ranks is not None:
            check_settings(self._ranks, layers, {"geometry": geometry, **options})

    def _divide(self, routing: Routing, parts: Mapping[str, Part]) -> None:
        self._shards: List[_Shard] = []
        gathered: List[int] = []
        for index, layer in enumerate(self.layers):
            part = parts[layer.name]
            if part.sharded and not steps_alone(layer, routing.rule(index), routing.matrices[index]):
                gathered.append(index)
            else:
                self._shards.append(_Shard(index, layer, part))
        ranks = 1 if self._ranks is None else self._ranks.size
        owners = routing.owners(gathered, [self.layers[index] for index in gathered], ranks)
        self._owned = [
            _Owned(index, self.layers[index], parts[self.layers[index].name], owner, owner == self._rank)
            for index, owner in zip(gathered, owners)
        ]

    def _check_rules(self, routing: Routing, clip: float) -> None:
        for index, layer in enumerate(self.layers):
            normalize = routing.rule(index).get("normalize")
            if normalize is not None:
                raise ValueError(
                    f"normalize: '{layer.name}' has {normalize}, and beside DTensors no layer can have one: its second "
                    "moments are not divided among ranks"
                )
        for shard in self._shards:
            if clip > 0 and shard.part.sharded and routing.rule(shard.index)["norm"] == "adamw":
                raise ValueError(
                    f"adamw_clip: '{shard.layer.name}' is sharded, and no rank has the length of its gradient; use "
                    "torch.nn.utils.clip_grad_norm_()"
                )

    @property
    def _rank(self) -> int:
        return 0 if self._ranks is None else self._ranks.rank

    def _mine(self) -> List[_Owned]:
        return [owned for owned in self._owned if owned.whole is not None]

    def _cores(self) -> List[_core.Optimizer]:
        return [core for core in (self._alone, self._together) if core is not None]

    # ---- a step ----

    def step(self) -> None:
        gradients = [self._gradient(layer, part) for layer, part in self._all_parts()]
        moves = self._judge(gradients)
        if moves is None:
            self.steps_skipped += 1
            return
        moving = [owned for owned in self._owned if moves[owned.index]]
        sent = [[_or_zeros(gradients[x.index], x.part), local_of(x.part.parameter)] for x in moving]
        wholes = {owned: owned.wholes(moves[owned.index]) for owned in self._owned}
        finish = self._gather_to_owners(moving, sent, [wholes[owned] for owned in moving])
        if self._alone is not None:  # while the others travel
            for shard in self._shards:
                moved = moves[shard.index]
                shard.take(_or_zeros(gradients[shard.index], shard.part) if moved else None)
            self._alone.step()
            for shard in self._shards:
                shard.held.grad = None
        finish()
        if self._together is not None:
            self._together.step()
        parameters = [local_of(owned.part.parameter) for owned in moving]
        self._scatter_from_owners(moving, [wholes[owned][1:] for owned in moving], parameters)
        self.steps_taken += 1

    def _all_parts(self) -> List[Tuple[_core.Layer, Part]]:
        parts = {entry.index: entry.part for entry in (*self._shards, *self._owned)}
        return [(layer, parts[index]) for index, layer in enumerate(self.layers)]

    def _gradient(self, layer: _core.Layer, part: Part) -> Optional[torch.Tensor]:
        gradient = part.parameter.grad
        if gradient is None:
            return None
        if layout_of(gradient) != layout_of(part.parameter):
            placed = "none" if layout_of(gradient) is None else gradient.placements  # type: ignore[attr-defined]
            raise ValueError(
                f"parameters: the gradient of '{layer.name}' has the placements {placed}, expected those of the "
                f"parameter, {layout_of(part.parameter)[1]}"  # type: ignore[index]
            )
        return local_of(gradient)

    def _judge(self, gradients: List[Optional[torch.Tensor]]) -> Optional[List[bool]]:
        """Which layers have a gradient on any rank; None if the step is to be skipped for NaN or Inf on any rank."""
        places = [place for place, gradient in enumerate(gradients) if gradient is not None]
        flags = torch.zeros(2, len(gradients), dtype=torch.int32)
        flags[0, places] = 1
        if places:
            finite = torch.stack([torch.isfinite(gradients[place]).all() for place in places])  # type: ignore[arg-type]
            flags[1, places] = (~finite).to("cpu", torch.int32)
        if self._ranks is not None:
            self._ranks.sum(flags)
        if not flags[1].any():
            return (flags[0] > 0).tolist()
        if not self._skips:
            bad = self.layers[int(flags[1].argmax())].name
            raise _core.NonFiniteGradient(
                f"Optimizer: the gradient of layer '{bad}' holds NaN or Inf at step {self.steps_taken}; nothing was "
                "updated"
            )
        return None

    # ---- exchanges ----

    def _gather_to_owners(
        self, layers: List[_Owned], sent: List[List[torch.Tensor]], wholes: List[List[torch.Tensor]]
    ) -> Callable[[], None]:
        """Sends this rank's rows of each layer; waiting fills the whole tensors of the layers that it owns."""

        def start(window: slice) -> Callable[[], None]:
            return self._exchange(self._by_owner(layers[window], sent[window]), self._by_rank(wholes[window]))

        return self._in_windows(layers, start)

    def _scatter_from_owners(
        self, layers: List[_Owned], wholes: List[List[torch.Tensor]], rows: List[torch.Tensor]
    ) -> None:
        """The inverse, for one tensor of each layer."""
        received = [[tensor] for tensor in rows]

        def start(window: slice) -> Callable[[], None]:
            return self._exchange(self._by_rank(wholes[window]), self._by_owner(layers[window], received[window]))

        self._in_windows(layers, start)()

    def _in_windows(self, layers: List[_Owned], start: Callable[[slice], Callable[[], None]]) -> Callable[[], None]:
        """Starts the exchange of the first layers; waiting ends it and does the others, each while the next is on its
        way, so that messages need little memory. All ranks cut alike."""
        ends, size = [0], 0
        for place, owned in enumerate(layers):
            parameter = owned.part.parameter
            size += parameter.numel() * parameter.element_size()
            if size >= WINDOW_BYTES or place == len(layers) - 1:
                ends.append(place + 1)
                size = 0
        windows = [slice(*ends[i : i + 2]) for i in range(len(ends) - 1)]
        if self._ranks is None or not windows:
            return lambda: None
        first = start(windows[0])

        def finish() -> None:
            pending = first
            for window in windows[1:]:
                following = start(window)
                pending()
                pending = following
            pending()

        return finish

    def _exchange(self, leaving: List[List[torch.Tensor]], arriving: List[List[torch.Tensor]]) -> Callable[[], None]:
        assert self._ranks is not None
        return start_exchange(self._ranks, leaving, arriving, self._owned[0].part.parameter.device)

    def _by_owner(self, layers: List[_Owned], tensors: List[List[torch.Tensor]]) -> List[List[torch.Tensor]]:
        assert self._ranks is not None
        parts: List[List[torch.Tensor]] = [[] for _ in range(self._ranks.size)]
        for owned, of_layer in zip(layers, tensors):
            parts[owned.owner] += of_layer
        return parts

    def _by_rank(self, wholes: List[List[torch.Tensor]]) -> List[List[torch.Tensor]]:
        assert self._ranks is not None
        size, mine = self._ranks.size, [whole for of_layer in wholes for whole in of_layer]
        return [[whole.narrow(0, *rows_of(whole.shape[0], size, rank)) for whole in mine] for rank in range(size)]

    # ---- settings and results ----

    def set_group_radius_multiplier(self, group: int, multiplier: float) -> None:
        for core in self._cores():
            core.set_group_radius_multiplier(group, multiplier)

    def set_group_beta(self, group: int, beta: float) -> None:
        for core in self._cores():
            core.set_group_beta(group, beta)

    def wait(self) -> None:
        for core in self._cores():
            core.wait()

    def state_bytes(self) -> int:
        return sum(core.state_bytes() for core in self._cores())

    def effective_radii(self) -> List[Tuple[str, float]]:
        found: List[List[float]] = [[0.0] * len(matrices) for matrices in self._matrices]
        radii = iter([] if self._alone is None else self._alone.effective_radii())
        for shard in self._shards:
            count, places = shard.places(len(found[shard.index]))
            values = [next(radii)[1] for _ in range(count)]
            # Ranks with the same matrix have the same radius; the first one's counts.
            if shard.part.sharded and len(found[shard.index]) > 1 or self._rank == 0:
                for place, value in zip(places, values):
                    found[shard.index][place] = value
        radii = iter([] if self._together is None else self._together.effective_radii())
        for owned in self._mine():
            found[owned.index] = [next(radii)[1] for _ in found[owned.index]]
        total = torch.tensor([value for values in found for value in values], dtype=torch.float64)
        if self._ranks is not None:
            self._ranks.sum(total)
        names = [name for matrices in self._matrices for name, _ in matrices]
        return list(zip(names, total.tolist()))

    # ---- state ----

    def state(self) -> _core.OptimizerState:
        return self._state_of(range(len(self.layers)))

    def layer_state(self, layer: int) -> _core.OptimizerState:
        return self._state_of([layer])

    def _state_of(self, indices: Container[int]) -> _core.OptimizerState:
        """Tensors that are placed as their parameters."""
        tensors: Dict[str, torch.Tensor] = {}
        for place, shard in enumerate(self._shards):
            if shard.index in indices and self._alone is not None:
                saved = self._alone.layer_state(place).tensors
                tensors.update((key, shard.saved(tensor)) for key, tensor in saved.items())
        layers = [x for x in self._owned if x.index in indices and self._keeps_momentum]
        places = {owned: place for place, owned in enumerate(self._mine())}
        wholes = [
            [self._together.layer_state(places[x]).tensors[x.key]] if self._together is not None and x in places else []
            for x in layers
        ]
        rows = [torch.empty(x.part.shape(), dtype=x.momentum_type, device=x.part.parameter.device) for x in layers]
        self._scatter_from_owners(layers, wholes, rows)
        tensors.update((owned.key, owned.part.placed(local)) for owned, local in zip(layers, rows))
        return _core.OptimizerState(_core.state_version, self.steps_taken, tensors)

    def load_state(self, state: _core.OptimizerState) -> None:
        with all_or_none(self._ranks, "when a state is loaded"):
            held = self._held_of(state)
        layers = self._owned if self._keeps_momentum else []
        wholes = [[] if x.whole is None else [torch.empty_like(x.whole, dtype=x.momentum_type)] for x in layers]
        sent = [[held[owned.key].to(owned.momentum_type)] for owned in layers]
        self._gather_to_owners(layers, sent, wholes)()
        if self._together is not None:
            tensors = {owned.key: whole for owned, of_layer in zip(layers, wholes) for whole in of_layer}
            self._together.load_state(_core.OptimizerState(state.version, state.step, tensors))
        if self._alone is not None:
            shards = {shard.layer.name: shard for shard in self._shards}
            named = [(key, shards.get(key.split("/", 1)[1]), tensor) for key, tensor in held.items()]
            tensors = {key: shard.loaded(tensor) for key, shard, tensor in named if shard is not None}
            self._alone.load_state(_core.OptimizerState(state.version, state.step, tensors))
        self.steps_taken = state.step

    def _held_of(self, state: _core.OptimizerState) -> Dict[str, torch.Tensor]:
        """This rank's part of each entry. Raises ValueError on entries that do not fit."""
        held: Dict[str, torch.Tensor] = {}
        for matrices, (layer, part) in zip(self._matrices, self._all_parts()):
            adamw = matrices[0][1] == "adamw"
            for kind in ("adamw.first", "adamw.second") if adamw else ("momentum",) * self._keeps_momentum:
                key = f"{kind}/{layer.name}"
                held[key] = part.of(state.find(key, layer.parameter.shape), f"optimizer state: '{key}'")
            if adamw:
                held[f"adamw.steps/{layer.name}"] = state.find(f"adamw.steps/{layer.name}", [])
        for key in state.tensors:
            if key not in held:
                raise ValueError(f"optimizer state: '{key}' belongs to no layer of this optimizer")
        return held


def _or_zeros(gradient: Optional[torch.Tensor], part: Part) -> torch.Tensor:
    """A gradient that other ranks have and this one does not counts as zero."""
    return torch.zeros_like(local_of(part.parameter)) if gradient is None else gradient
