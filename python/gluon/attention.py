"""QK-clip, Kimi K2's bound on attention logits (arXiv 2507.20534)."""

import torch

from . import _core


def qk_clip(
    query_weight: torch.Tensor,
    key_weight: torch.Tensor,
    max_logits: torch.Tensor,
    tau: float = 100.0,
    alpha: float = 0.5,
) -> torch.Tensor:
    """Scales the rows of the heads whose largest logit S exceeds tau, in place; call it after ``optimizer.step()``.

    ``max_logits`` (heads) holds S = max of <q, k> / sqrt(d) over batch and positions of the step's forward passes. Where
    S > tau, with gamma = tau / S, queries are multiplied by gamma^alpha and keys by gamma^(1 - alpha); a key head that
    several query heads share stays, and the queries take all of gamma. Other heads keep their bits, and the optimizer
    its state. The weights, (heads d, n), may be rows of a fused one, and of any floating point type; biases, (heads d),
    take a call of their own. Returns gamma, without waiting for a GPU: 1 for heads that stay, NaN for those whose logit
    is NaN or infinite, which stay, too.

    >>> import torch, gluon
    >>> attention = torch.nn.MultiheadAttention(4, num_heads=2, bias=False)
    >>> query, key, value = attention.in_proj_weight.chunk(3)
    >>> gluon.qk_clip(query, key, torch.tensor([400.0, 99.0]), tau=100)
    tensor([0.2500, 1.0000])
    """
    return _core.qk_clip(query_weight, key_weight, max_logits, tau, alpha)
