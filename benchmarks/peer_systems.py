"""What gpu_peers.py, time_to_loss.py and eager_train.py compare with: optimizers and a model as commonly written in
PyTorch. A schedule sets the optimizers' attribute `multiplier` before a step."""
import functools
import math

import torch
import torch.nn.functional as F
from torch import nn

# ---- orthogonalization ------------------------------------------------------------------------------------------

JORDAN = [(3.4445, -4.7750, 2.0315)] * 5
SAFETY = 1.01
POLAR_EXPRESS = [(a / SAFETY, b / SAFETY**3, c / SAFETY**5) for a, b, c in [
    (8.28721201814563, -23.595886519098837, 17.300387312530933),
    (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
    (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
    (3.3184196573706015, -2.488488024314874, 0.51004894012372),
    (2.300652019954817, -1.6689039845747493, 0.4188073119525673)]]


def is_tall(x):
    return x.shape[-2] > x.shape[-1]


def iterate(x, coefficients, safety):
    """The quintic iteration for x (..., k, l), k <= l, in its precision."""
    x = x / (x.float().square().sum((-2, -1), keepdim=True).sqrt() * safety + 1e-7).to(x.dtype)
    for a, b, c in coefficients:
        gram = x @ x.mT
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return x


def orthogonalize(g, coefficients, safety, dtype=torch.bfloat16):
    """One matrix."""
    x = g.to(dtype)
    return iterate(x.mT, coefficients, safety).mT if is_tall(x) else iterate(x, coefficients, safety)


def orthogonalize_stacks(*stacks):
    """Polar Express of stacks (b, m, n) and (b, n, m) as one; each comes back in its own layout, float32."""
    x = torch.cat([stack.mT if is_tall(stack) else stack for stack in stacks])
    parts = iterate(x, POLAR_EXPRESS, SAFETY).split([stack.shape[0] for stack in stacks])
    return [(part.mT if is_tall(stack) else part).float().contiguous() for stack, part in zip(stacks, parts)]


# ---- optimizers -------------------------------------------------------------------------------------------------


def scion_scale(rows, columns):
    """How far Scion moves a matrix in the spectral norm, in radii."""
    return math.sqrt(rows / columns)


@functools.lru_cache(maxsize=None)
def compiled_stacks():
    return torch.compile(orthogonalize_stacks, dynamic=False)


class StackedPolarExpress:
    """Muon; with nesterov=False and scale=scion_scale what Scion does with hidden matrices."""

    def __init__(self, parameters, radius=0.02, beta=0.95, nesterov=True, scale=lambda rows, columns: 1):
        self.radius, self.beta, self.nesterov, self.scale, self.multiplier = radius, beta, nesterov, scale, 1
        self.parameters, self.momenta, self.inputs, self.groups = {}, {}, {}, {}
        for parameter in parameters:
            self.parameters.setdefault(tuple(parameter.shape), []).append(parameter)
        for shape, same in self.parameters.items():
            self.momenta[shape] = [torch.zeros_like(parameter) for parameter in same]
            self.inputs[shape] = torch.empty(len(same), *shape, dtype=torch.bfloat16, device=same[0].device)
            self.groups.setdefault(tuple(sorted(shape)), []).append(shape)

    @torch.no_grad()
    def step(self):
        for shape, momenta in self.momenta.items():
            gradients = [parameter.grad for parameter in self.parameters[shape]]
            torch._foreach_lerp_(momenta, gradients, 1 - self.beta)
            ahead = torch._foreach_lerp(gradients, momenta, self.beta) if self.nesterov else momenta
            torch._foreach_copy_(list(self.inputs[shape].unbind()), ahead)
        for shapes in self.groups.values():
            directions = compiled_stacks()(*[self.inputs[shape] for shape in shapes])
            for shape, stack in zip(shapes, directions):
                length = self.multiplier * self.radius * self.scale(*shape)
                torch._foreach_add_(self.parameters[shape], list(stack.unbind()), alpha=-length)


class Scion:
    """Unconstrained, one matrix at a time; `iteration` has the arguments of orthogonalize()."""

    def __init__(self, hidden, embedding, iteration=(JORDAN, 1), radius=0.018, embedding_radius=1.08):
        self.hidden, self.embedding, self.iteration = hidden, embedding, iteration
        self.radius, self.embedding_radius, self.multiplier = radius, embedding_radius, 1
        self.momenta = {parameter: torch.zeros_like(parameter) for parameter in [*hidden, *embedding]}

    @torch.no_grad()
    def step(self):
        for parameter in self.hidden:
            momentum = self.momenta[parameter].lerp_(parameter.grad, 0.1)
            length = self.multiplier * self.radius * scion_scale(*parameter.shape)
            parameter.add_(orthogonalize(momentum, *self.iteration), alpha=-length)
        for parameter in self.embedding:
            momentum = self.momenta[parameter].lerp_(parameter.grad, 0.1)
            length = self.multiplier * self.embedding_radius / parameter.shape[1]
            parameter.add_(momentum.sign(), alpha=-length)


# ---- the model --------------------------------------------------------------------------------------------------


def rms_norm(x):
    y = x.float()
    return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + torch.finfo(y.dtype).eps)).to(x.dtype)


def rotate(x, cos, sin):
    x1, x2 = x.chunk(2, -1)
    return torch.cat([x1 * cos + x2 * sin, x2 * cos - x1 * sin], -1).to(x.dtype)


@functools.lru_cache(maxsize=None)
def later(tokens):
    return torch.ones(tokens, tokens).triu(1).bool()


def causal_attention(q, k, v):
    """One function of torch 2; in torch 1.13, on the CPU, a masked softmax."""
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    scores = (q @ k.transpose(-2, -1)) / math.sqrt(q.shape[-1])
    return F.softmax(scores.masked_fill(later(q.shape[-2]), -math.inf), dim=-1) @ v


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_q, self.c_k, self.c_v, self.c_proj = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.c_up = nn.Linear(width, 4 * width, bias=False)
        self.c_down = nn.Linear(4 * width, width, bias=False)
        for layer in (self.c_proj, self.c_down):
            nn.init.zeros_(layer.weight)

    def forward(self, x, cos, sin):
        y = rms_norm(x)
        q, k, v = [c(y).unflatten(-1, (self.heads, -1)) for c in (self.c_q, self.c_k, self.c_v)]
        q, k = [rotate(rms_norm(z), cos, sin) for z in (q, k)]
        y = causal_attention(*[z.transpose(1, 2) for z in (q, k, v)])
        x = x + self.c_proj(y.transpose(1, 2).flatten(2))
        return x + self.c_down(2 * F.relu(self.c_up(rms_norm(x))).square())


class NanoGpt(nn.Module):
    def __init__(self, vocabulary, context, layers, width, heads, stream=torch.bfloat16):
        super().__init__()
        self.stream = stream
        self.head = nn.Linear(width, vocabulary, bias=False)  # and the embedding
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        dimension = width // heads
        frequencies = 10000.0 ** (-torch.arange(0, dimension, 2).float() / dimension)
        angles = torch.outer(torch.arange(context).float(), frequencies)[:, None, :]
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, tokens, targets):
        x = F.embedding(tokens, self.head.weight).to(self.stream)
        for block in self.blocks:
            x = block(x, self.cos[:tokens.shape[1]], self.sin[:tokens.shape[1]])
        return F.cross_entropy(self.head(rms_norm(x)).float().flatten(0, 1), targets.flatten())
