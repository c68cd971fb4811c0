"""A process group of torch.distributed as the ranks that share the layers, and what they have to agree on."""

import contextlib
import zlib
from typing import Any, Dict, Iterator, List, Optional

import torch
import torch.distributed as dist

from . import _core

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def collective_of(group: Any) -> _core.Collective:
    """The group's members as the C++ library sees them. Raises ValueError on what is not a group with this process."""
    if not dist.is_available() or not dist.is_initialized():
        raise ValueError("process_group: call torch.distributed.init_process_group() before the optimizer is made")
    if group == dist.GroupMember.NON_GROUP_MEMBER:
        raise ValueError(f"process_group: rank {dist.get_rank()} is not one of its members")
    if not isinstance(group, dist.ProcessGroup):
        raise ValueError(
            "process_group: expected one of torch.distributed's, such as torch.distributed.group.WORLD, got "
            f"{type(group).__name__}"
        )
    ranks = [dist.get_global_rank(group, rank) for rank in range(dist.get_world_size(group))]
    return _core.Collective(group, dist.get_rank(group), ranks, _staging_device(group))


def _staging_device(group: Any) -> Optional[torch.device]:
    """Where tensors of the CPU have to go to be exchanged; none where the group takes them as they are.

    A device without an index: the one that is current when something is exchanged.
    """
    types = getattr(group, "_device_types", None)  # torch 2; before, one backend served a group
    names = [device.type for device in types] if types else ["cuda" if dist.get_backend(group) == "nccl" else "cpu"]
    return None if "cpu" in names else torch.device(names[0])


def check_layers(collective: _core.Collective, layers: List[_core.Layer], settings: Dict[str, Any]) -> None:
    """Raises ValueError on all ranks unless they have the same layers with the same values, and the same settings.

    Otherwise owners would overwrite each other's layers with what they happen to have.
    """
    known = [(x.name, x.role, x.group, x.parameter.dtype, tuple(x.parameter.shape)) for x in layers]
    checksum = zlib.crc32(repr((known, settings)).encode())
    _core.check_agreement(collective, "layers or settings", f"{len(layers)} layers, checksum {checksum:08x}")
    # Sums of the bits: exact, so that they do not depend on the order of adding.
    sums = [x.parameter.detach().view(_INTEGERS[x.parameter.element_size()]).sum() for x in layers]
    values = torch.stack([total.to(sums[0].device) for total in sums]).tolist()
    _core.check_agreement(
        collective,
        "parameters (broadcast them from one rank, or load the same on all, before the optimizer is made or loaded)",
        f"checksum {zlib.crc32(repr(values).encode()):08x}",
    )


def check_states(collective: _core.Collective, state: _core.OptimizerState) -> None:
    """Raises ValueError on all ranks unless they are about to load the same entries of the same step."""
    checksum = zlib.crc32(repr(sorted(state.tensors)).encode())
    text = f"step {state.step}, {len(state.tensors)} tensors, checksum of their names {checksum:08x}"
    _core.check_agreement(collective, "states", text)


@contextlib.contextmanager
def all_or_none(collective: Optional[_core.Collective], what: str) -> Iterator[None]:
    """What raises inside on one rank raises on all; nothing may be exchanged inside."""
    said = "none"
    try:
        yield
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        raise
    finally:
        if collective is not None:
            _core.check_agreement(collective, f"errors {what}", said)
