"""Notices torch.nn.utils.clip_grad_norm_(), which shortens no step of an LMO."""

import math
from typing import Iterable, Optional

import torch

from . import _core
from .shards import is_dtensor
from .warning import warn

STEPS = 8  # of an optimizer that are looked at; runs are clipped from their beginning
REPEATS = 3  # steps with the same length before it is clipping


def ignores_lengths(geometry: _core.Geometry) -> bool:
    """Whether an LMO moves any layers by radii that do not read the dual norm."""
    return any(
        rule["norm"] != "adamw" and not str(rule["radius"]).startswith(("smooth", "relative_noise", "steepest"))
        for rule in geometry.rules
    )


class ClippingWatch:
    """Looks at the total length of the gradients in the first steps. Clipping leaves its own limit, a round number, step
    after step; lengths that nobody touches differ."""

    def __init__(self) -> None:
        self._left = STEPS
        self._limit: Optional[float] = None
        self._same = 0

    def look(self, gradients: Iterable[Optional[torch.Tensor]]) -> None:
        """Warns when the gradients of this step and of those before have one length."""
        if self._left == 0:
            return
        self._left -= 1
        found = [gradient for gradient in gradients if gradient is not None]
        if any(is_dtensor(gradient) for gradient in found):
            return  # a rank has a part of it, and its length would cost a message
        lengths = [gradient.detach().float().norm() for gradient in found]
        length = torch.stack([one.to(lengths[0].device) for one in lengths]).norm().item() if lengths else 0.0
        limit = _round_number(length)
        self._same = self._same + 1 if limit is not None and limit == self._limit else int(limit is not None)
        self._limit = limit
        if self._same == REPEATS:
            self._left = 0
            warn(
                f"in {REPEATS} steps the gradients had the total length {limit:g}, as clip_grad_norm_() leaves "
                "them; Hugging Face's Trainer calls it unless max_grad_norm=0. The length changes no step: each layer "
                "moves by its radius. To take shorter steps, lower radius or lr (docs/python.md, Gradient clipping)",
            )


def _round_number(length: float) -> Optional[float]:
    """The number of two digits that the length is up to the rounding of clipping, if there is one."""
    if not (0 < length < math.inf):
        return None
    nearest = float(f"{length:.1e}")
    return nearest if abs(length - nearest) <= 1e-4 * nearest else None
