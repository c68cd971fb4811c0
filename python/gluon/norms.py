"""Norms of parameters, their duals and linear minimization oracles, by name.

Names are those of rules: "spectral", "max_entry", "euclidean", "columns", "rows", "scaled(sqrt(n/m),spectral)".
Tensors have the shapes of parameters: (m, n) is a matrix, (..., m, n) a stack of matrices, (C) a vector, (out, in, k,
k) a convolution, flattened to (out, in k k). `role` overrides what the shape suggests.

A rule or group may have a norm of your own, an object with a `name` and three functions of a stack (b, m, n): `norm`
and `dual_norm` return (b) numbers, `lmo` the (b, m, n) minimisers, with lmo(0) = 0. Arguments are float32 or float64
and must not be changed. The optimizer calls check() for the shapes of its layers before the first step.
"""

from typing import Any, Optional

import torch

from . import _core

__all__ = ["check", "dual_norm", "lmo", "norm", "orthogonalize"]


def norm(x: torch.Tensor, name: str, *, role: Optional[str] = None) -> torch.Tensor:
    """|x|, one value per matrix.

    >>> import torch, gluon
    >>> gluon.norms.norm(torch.tensor([[3.0, 0.0], [0.0, -4.0]]), "spectral")
    tensor(4.)
    """
    return _core.norm(x, name, role)


def dual_norm(g: torch.Tensor, name: str, *, role: Optional[str] = None) -> torch.Tensor:
    """|g|* = max of <g, z> over |z| <= 1, exactly, one value per matrix.

    >>> import torch, gluon
    >>> gluon.norms.dual_norm(torch.tensor([[3.0, 0.0], [0.0, -4.0]]), "spectral")
    tensor(7.)
    """
    return _core.dual_norm(g, name, role)


def lmo(
    g: torch.Tensor, name: str, *, role: Optional[str] = None, orthogonalizer: str = _core.default_orthogonalizer
) -> torch.Tensor:
    """The minimiser of <g, z> over |z| <= 1, shaped as g: it points downhill, and lmo(0) = 0.

    `orthogonalizer` is for "spectral" norms that do not name one.

    >>> import torch, gluon
    >>> gluon.norms.lmo(torch.tensor([[3.0, 0.0], [0.0, -4.0]]), "max_entry")
    tensor([[-1., -0.],
            [-0.,  1.]])
    """
    return _core.lmo(g, name, role, orthogonalizer)


def orthogonalize(
    x: torch.Tensor, method: str = _core.default_orthogonalizer, *, role: Optional[str] = None
) -> torch.Tensor:
    """The polar factor U V^T of each matrix of x = U S V^T.

    `method`: "polar_squares[:N]" (N squares, 9 by default), "polar_express[:STEPS]", "newton_schulz[:STEPS]" or "svd";
    "bfloat16:NAME" and "float32:NAME" select the precision.

    >>> import torch, gluon
    >>> gluon.orthogonalize(torch.tensor([[3.0, 0.0], [0.0, -4.0]]), "svd").round(decimals=4)
    tensor([[ 1.,  0.],
            [ 0., -1.]])
    """
    return _core.orthogonalize(x, method, role)


def check(norm: Any, m: int, n: int) -> None:
    """Raises ValueError on the first identity that an object violates as a norm of m x n matrices: <g, lmo(g)> = -|g|*,
    |lmo(g)| = 1, lmo(a g) = lmo(g), <g, x> <= |g|* |x|, and those that the optimizer relies on.

    The largest relative error is the object's attribute `tolerance`, or 1e-3.

    >>> import torch, gluon
    >>> class Frobenius:
    ...     name = "frobenius"
    ...     def norm(self, x):
    ...         return x.norm(dim=(1, 2))
    ...     dual_norm = norm
    ...     def lmo(self, g):
    ...         length = g.norm(dim=(1, 2), keepdim=True)
    ...         return -g / length.masked_fill(length == 0, 1)
    >>> gluon.norms.check(Frobenius(), 3, 5)
    >>> gluon.Geometry([{"norm": Frobenius(), "radius": 0.1}])
    Geometry([{'norm': 'frobenius', 'radius': 0.1}], momentum='ema(0.9)')
    """
    _core.check_norms([_core.Layer("x", torch.zeros(m, n), "hidden")], _core.Geometry([{"norm": norm}]))
