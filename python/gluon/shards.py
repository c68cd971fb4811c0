"""Parameters that are DTensors, as fully_shard() makes them: what this rank holds of each, and which are refused.

A DTensor may be replicated, or sharded on dimension 0 over one dimension of its mesh, evenly or not; the mesh's other
dimensions then replicate it (HSDP). Plain tensors are held whole.
"""

from typing import Any, Dict, Mapping, NamedTuple, Optional, Tuple

import torch

from . import _core
from .distributed import collective_of


def is_dtensor(tensor: Any) -> bool:
    return getattr(tensor, "device_mesh", None) is not None


def layout_of(tensor: torch.Tensor) -> Optional[Tuple[Any, Any]]:
    """Mesh and placements of a DTensor, None of a plain tensor."""
    return (tensor.device_mesh, tuple(tensor.placements)) if is_dtensor(tensor) else None  # type: ignore[attr-defined]


def local_of(tensor: torch.Tensor) -> torch.Tensor:
    """What this rank holds of a tensor, on the same memory."""
    return (tensor.to_local() if is_dtensor(tensor) else tensor).detach()  # type: ignore[attr-defined]


def whole_of(name: str, parameter: torch.Tensor, trains: bool) -> torch.Tensor:
    """The parameter, or of a DTensor a tensor without memory that has the whole's shape, dtype and device.

    Raises ValueError on placements with which a parameter cannot train.
    """
    if not is_dtensor(parameter):
        return parameter
    if trains:
        sharded_dimension(name, parameter)
    return torch.empty((), dtype=parameter.dtype, device=parameter.device).expand(parameter.shape)


def sharded_dimension(name: str, parameter: torch.Tensor) -> Optional[int]:
    """The dimension of its mesh that shards a DTensor; None if it is replicated."""
    try:
        from torch.distributed.tensor import Replicate, Shard
    except ImportError:
        raise ValueError(
            f"parameters: '{name}' is a DTensor, which needs torch 2.5 or later; this is {torch.__version__}"
        ) from None
    placements = parameter.placements  # type: ignore[attr-defined]
    # A strided shard, of FSDP over tensor parallelism, is a subclass of Shard.
    sharded = [place for place, placement in enumerate(placements) if type(placement) is not Replicate]
    if len(sharded) > 1 or any(type(placements[i]) is not Shard or placements[i].dim != 0 for i in sharded):
        raise ValueError(
            f"parameters: '{name}' has the placements {tuple(placements)}; allowed are Replicate() and, in at most one "
            "place, Shard(dim=0)"
        )
    return sharded[0] if sharded else None


def rows_of(rows: int, ranks: int, rank: int) -> Tuple[int, int]:
    """The first row and the number of rows of a rank: equal shares rounded up, so that the last ones may be empty."""
    share = -(-rows // ranks)
    start = min(rank * share, rows)
    return start, min(share, rows - start)


class Part(NamedTuple):
    """What this rank holds of a parameter: `rows` rows of dimension 0 from `start`, or all of a replicated one."""

    parameter: torch.Tensor
    sharded: bool
    start: int
    rows: int

    def shape(self) -> torch.Size:
        whole = self.parameter.shape
        return torch.Size((self.rows, *whole[1:])) if self.sharded else whole

    def of(self, tensor: torch.Tensor, what: str) -> torch.Tensor:
        """This rank's part of a tensor like the parameter, which is whole or a DTensor placed as the parameter is."""
        if is_dtensor(tensor):
            if layout_of(tensor) != layout_of(self.parameter):
                raise ValueError(f"{what} has the placements {_placed(tensor)}, expected {_placed(self.parameter)}")
            return local_of(tensor)
        return tensor.narrow(0, self.start, self.rows) if self.sharded else tensor

    def placed(self, local: torch.Tensor) -> torch.Tensor:
        """The tensor, placed as the parameter is, of which this rank holds `local`."""
        if not is_dtensor(self.parameter):
            return local
        from torch.distributed.tensor import DTensor

        whole = torch.empty((), device="meta").expand(self.parameter.shape)
        mesh, placements = layout_of(self.parameter)  # type: ignore[misc]
        stride = torch.empty_like(whole, memory_format=torch.contiguous_format).stride()
        return DTensor.from_local(local, mesh, placements, run_check=False, shape=whole.shape, stride=stride)


def _placed(tensor: torch.Tensor) -> str:
    layout = layout_of(tensor)
    return "of a plain tensor" if layout is None else f"{layout[1]} on {layout[0]}"


def ranks_of(parameters: Mapping[str, torch.Tensor]) -> Optional[_core.Collective]:
    """The ranks that hold the shards; None if nothing is sharded. Raises ValueError, the same on all ranks, unless all
    shards are of the same ranks."""
    first: Optional[Tuple[str, Any, int]] = None
    for name, parameter in parameters.items():
        dimension = sharded_dimension(name, parameter) if is_dtensor(parameter) else None
        if dimension is None:
            continue
        mesh = parameter.device_mesh  # type: ignore[attr-defined]
        first = first or (name, mesh, dimension)
        if (mesh, dimension) != first[1:]:
            raise ValueError(
                f"parameters: '{name}' is sharded over {mesh}, '{first[0]}' over {first[1]}; the shards of one "
                "optimizer must be of one mesh and one dimension of it"
            )
        if not bool((mesh.mesh.diff(dim=dimension) > 0).all()):  # groups number their ranks in ascending order
            raise ValueError(f"parameters: '{name}' is sharded over {mesh}, whose ranks must ascend")
    return None if first is None else collective_of(first[1].get_group(first[2]))


def parts_of(parameters: Mapping[str, torch.Tensor], ranks: Optional[_core.Collective]) -> Dict[str, Part]:
    """What this rank holds. Raises ValueError on a share unlike that of fully_shard()."""
    parts: Dict[str, Part] = {}
    for name, parameter in parameters.items():
        if ranks is None or not is_dtensor(parameter) or sharded_dimension(name, parameter) is None:
            parts[name] = Part(parameter, False, 0, 0)
            continue
        held = local_of(parameter).shape[0]
        start, rows = rows_of(parameter.shape[0], ranks.size, ranks.rank)
        if held != rows:
            raise ValueError(
                f"parameters: rank {ranks.rank} of {ranks.size} has {held} of the {parameter.shape[0]} rows of "
                f"'{name}', expected {rows} as fully_shard() divides them"
            )
        parts[name] = Part(parameter, True, start, rows)
    return parts
