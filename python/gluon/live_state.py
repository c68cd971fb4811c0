"""optimizer.state as torch's tools read it: the tensors of each parameter, taken from the core when they are wanted."""

from typing import Any, Dict, Iterator, Mapping

import torch

from .states import by_layer, torchs_entry


class LiveState(Mapping[torch.Tensor, Dict[str, torch.Tensor]]):
    """Parameter -> its tensors, by the names of torch.optim.Muon and AdamW.

    The tensors are copies: the core keeps momentum stacked by shape, and on a GPU the length of each matrix of it, so
    that a change from outside would go unnoticed. load_state_dict() changes a state. It is never empty: torch's tools
    fill an empty one by a step with zero gradients, which would be one more step of the momentum.
    """

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer

    def _indices(self) -> Dict[int, int]:
        """Indices of the core's layers by the parameter's id."""
        places = {layer.name: index for index, layer in enumerate(self._optimizer._core.layers)}
        named = self._optimizer._parameters()
        return {id(parameter): places[name] for name, parameter, *_ in named if name in places}

    def __getitem__(self, parameter: torch.Tensor) -> Dict[str, torch.Tensor]:
        """A KeyError if the optimizer never moved the parameter. With several ranks all of them call it together."""
        index = self._indices().get(id(parameter))
        if index is None:
            raise KeyError(parameter)
        core = self._optimizer._core
        state = core.layer_state(index)
        return torchs_entry(by_layer(state.tensors).get(core.layers[index].name, {}), state.step)

    def __contains__(self, parameter: object) -> bool:
        return id(parameter) in self._indices()

    def __iter__(self) -> Iterator[torch.Tensor]:
        indices = self._indices()
        return (parameter for _, parameter, *_ in self._optimizer._parameters() if id(parameter) in indices)

    def __len__(self) -> int:
        return len(self._indices())
