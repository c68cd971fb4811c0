"""One message from each rank to each other: rows of many tensors, whatever their dtypes, packed into bytes."""

from typing import Callable, List, Sequence

import torch

from . import _core

_ALIGNMENT = 8  # bytes; the largest entry of a floating point tensor


def _packed_size(tensor: torch.Tensor) -> int:
    return -(-tensor.numel() * tensor.element_size() // _ALIGNMENT) * _ALIGNMENT


def _pack(tensors: Sequence[torch.Tensor], device: torch.device) -> torch.Tensor:
    parts = []
    for tensor in tensors:
        values = tensor.detach().contiguous().view(-1).view(torch.uint8)
        gap = _packed_size(tensor) - values.numel()
        parts += [values.to(device), torch.zeros(gap, dtype=torch.uint8, device=device)]
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8, device=device)


def _unpack(message: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
    offset = 0
    for tensor in tensors:
        values = message[offset : offset + tensor.numel() * tensor.element_size()]
        tensor.copy_(values.view(tensor.dtype).view(tensor.shape))
        offset += _packed_size(tensor)


def start_exchange(
    ranks: _core.Collective,
    sent: Sequence[Sequence[torch.Tensor]],
    received: Sequence[Sequence[torch.Tensor]],
    device: torch.device,
) -> Callable[[], None]:
    """Sends tensors to each rank; the function that it returns waits for what each rank sent, and fills `received`.

    A rank must send what the other one expects: the same shapes and dtypes in the same order.
    """
    leaving = _pack([tensor for part in sent for tensor in part], device)
    counts = [sum(map(_packed_size, part)) for part in received]
    arriving = torch.empty(sum(counts), dtype=torch.uint8, device=device)
    exchange = ranks.all_to_all(arriving, counts, leaving, [sum(map(_packed_size, part)) for part in sent])

    def finish() -> None:
        exchange.wait()
        targets: List[torch.Tensor] = [tensor for part in received for tensor in part]
        _unpack(arriving, targets)

    return finish
