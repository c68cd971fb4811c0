"""Makes a process group of torch.distributed the ranks that share the layers, and checks that they agree."""

import contextlib
import zlib
from typing import Any, Dict, Iterator, List, Optional

import torch
import torch.distributed as dist

from . import _core

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def collective_of(group: Any) -> _core.Collective:
    """The group as the C++ library's collective. Raises ValueError if it is not a group that contains this process."""
    if not dist.is_available() or not dist.is_initialized():
        raise ValueError("process_group: call torch.distributed.init_process_group() before creating the optimizer")
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
    """The device that CPU tensors must be copied to before an exchange; None if the group accepts CPU tensors.

    The device has no index: an exchange uses the current device.
    """
    types = getattr(group, "_device_types", None)  # torch 2; torch 1.13 has one backend per group
    names = [device.type for device in types] if types else ["cuda" if dist.get_backend(group) == "nccl" else "cpu"]
    return None if "cpu" in names else torch.device(names[0])


def check_layers(collective: _core.Collective, layers: List[_core.Layer], settings: Dict[str, Any]) -> None:
    """Raises ValueError on all ranks unless they have equal layers, parameter values and settings.

    Without equal values, the owners' updates would mix different models.
    """
    check_settings(collective, layers, settings)
    # Integer sums of the bits do not depend on the order of addition.
    sums = [x.parameter.detach().view(_INTEGERS[x.parameter.element_size()]).sum() for x in layers]
    values = torch.stack([total.to(sums[0].device) for total in sums]).tolist()
    _core.check_agreement(
        collective,
        "parameters (broadcast them from one rank, or load the same on all, before creating or loading the optimizer)",
        f"checksum {zlib.crc32(repr(values).encode()):08x}",
    )


def check_settings(collective: _core.Collective, layers: List[_core.Layer], settings: Dict[str, Any]) -> None:
    """Raises ValueError on all ranks unless they have equal layers, whatever their values, and settings."""
    known = [(x.name, x.role, x.group, x.parameter.dtype, tuple(x.parameter.shape)) for x in layers]
    checksum = zlib.crc32(repr((known, settings)).encode())
    _core.check_agreement(collective, "layers or settings", f"{len(layers)} layers, checksum {checksum:08x}")


def check_states(collective: _core.Collective, state: _core.OptimizerState) -> None:
    """Raises ValueError on all ranks unless they load the same entries of the same step."""
    checksum = zlib.crc32(repr(sorted(state.tensors)).encode())
    text = f"step {state.step}, {len(state.tensors)} tensors, checksum of their names {checksum:08x}"
    _core.check_agreement(collective, "states", text)


def check_owners(old: Any, new: Any, what: str) -> None:
    """Raises ValueError unless this rank owns the same layers of two cores."""
    of_old, of_new = ([(x.name, core.owns(index)) for index, x in enumerate(core.layers)] for core in (old, new))
    if of_old != of_new:
        raise ValueError(
            f"{what}: adding parameters would change which rank owns which layer, and a SmoothnessRecorder measures the "
            "layers that its rank owned; add them before creating the recorder"
        )


@contextlib.contextmanager
def all_or_none(collective: Optional[_core.Collective], what: str) -> Iterator[None]:
    """An exception inside on one rank raises on all ranks. The ranks must not communicate inside."""
    failure = "none"
    try:
        yield
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
        raise
    finally:
        if collective is not None:
            _core.check_agreement(collective, f"errors {what}", failure)
