"""Warnings that name the user's line, whatever is called in between."""

import sys
import warnings

_OURS = ("gluon", "torch")  # torch wraps step()


def warn(sentence: str) -> None:
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in _OURS:
        level, frame = level + 1, frame.f_back
    warnings.warn(f"gluon: {sentence}", stacklevel=level)
