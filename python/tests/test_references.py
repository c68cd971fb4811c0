"""50 steps of a small transformer compared with torch.optim.Muon and with plain implementations of Muon and Scion.

Five Jordan steps in bfloat16 are coarse, and training accumulates their rounding. The tests measure this noise: the
distance between plain runs that orthogonalize in bfloat16 and in float32. "Within bfloat16 noise" means at most twice
that distance, relative to how far the layers have moved, over all layers together.
"""

import math

import pytest
import torch
from conftest import needs_cuda, needs_torch
from torch import nn

import gluon

DEVICES = ["cpu", pytest.param("cuda", marks=needs_cuda)]
BFLOAT16 = "bfloat16:newton_schulz:5"  # the iteration of torch.optim.Muon
STEPS, WORDS, LENGTH, WIDTH, HEADS = 50, 32, 16, 32, 4


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed_tokens = nn.Embedding(WORDS, WIDTH)
        options = dict(dropout=0.0, norm_first=True, batch_first=True)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, **options) for _ in range(2))
        self.norm = nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, WORDS, bias=False)

    def loss(self, step):
        generator = torch.Generator().manual_seed(step)
        starts = torch.randint(0, WORDS, (8, 1), generator=generator)
        strides = torch.randint(1, 4, (8, 1), generator=generator)
        tokens = ((starts + strides * torch.arange(LENGTH + 1)) % WORDS).to(self.norm.weight.device)
        x = self.embed_tokens(tokens[:, :-1])
        future = torch.ones(LENGTH, LENGTH, dtype=torch.bool, device=x.device).triu(1)
        for layer in self.layers:
            x = layer(x, future)
        return nn.functional.cross_entropy(self.lm_head(self.norm(x)).flatten(0, 1), tokens[:, 1:].flatten())

    def is_hidden(self, name):
        return name.startswith("layers") and dict(self.named_parameters())[name].dim() == 2


def jordan(g, dtype):
    x = g.to(dtype)
    x = x.T if g.size(0) > g.size(1) else x
    x = x / x.norm()
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.775 * gram + 2.0315 * gram @ gram) @ x
    return (x.T if g.size(0) > g.size(1) else x).to(g.dtype)


def exact(g, dtype):
    """Ignores singular values that are zero up to rounding: a gradient behind a LayerNorm has one."""
    u, s, v = torch.linalg.svd(g, full_matrices=False)
    return u * (s > max(g.shape) * torch.finfo(g.dtype).eps * s[0]) @ v


class PlainMuon:
    def __init__(self, parameters, lr, momentum, weight_decay, dtype):
        self.lr, self.momentum, self.weight_decay, self.dtype = lr, momentum, weight_decay, dtype
        self.buffers = {parameter: torch.zeros_like(parameter) for parameter in parameters}

    @torch.no_grad()
    def step(self):
        for x, buffer in self.buffers.items():
            buffer.lerp_(x.grad, 1 - self.momentum)
            ahead = x.grad.lerp(buffer, self.momentum)
            x.mul_(1 - self.lr * self.weight_decay)
            x.sub_(jordan(ahead, self.dtype), alpha=self.lr * math.sqrt(max(1, x.size(0) / x.size(1))))


class PlainScion:
    def __init__(self, groups, lr, momentum, dtype, polar):
        self.groups, self.lr, self.momentum, self.dtype, self.polar = groups, lr, momentum, dtype, polar
        self.buffers = {x: torch.zeros_like(x) for group in groups for _, x in group["params"]}

    def direction(self, norm, m):
        if norm == "Spectral":
            return math.sqrt(m.size(0) / m.size(1)) * self.polar(m, self.dtype)
        return m.sign() / m.size(1) if norm == "Sign" else m / m.square().mean().sqrt()

    @torch.no_grad()
    def step(self):
        for group in self.groups:
            for _, x in group["params"]:
                buffer = self.buffers[x].mul_(1 - self.momentum).add_(x.grad, alpha=self.momentum)
                x.mul_(1 - self.lr).sub_(self.direction(group["norm"], buffer), alpha=self.lr * group["scale"])


def trained(device, make, dtype=torch.float32):
    """The parameters after 50 steps of the optimizers that make(model) returns."""
    model = Transformer().to(device, dtype)
    optimizers = make(model)
    for step in range(STEPS):
        for parameter in model.parameters():
            parameter.grad = None
        model.loss(step).backward()
        for optimizer in optimizers:
            optimizer.step()
    assert model.loss(STEPS).item() < 0.8 * math.log(WORDS)
    return dict(model.named_parameters())


def distance(a, b):
    """|a - b| over |a - start|, all layers together."""
    start = dict(Transformer().named_parameters())
    difference = sum((a[name] - b[name]).square().sum().item() for name in start)
    return math.sqrt(difference / sum((a[name].cpu() - start[name]).square().sum().item() for name in start))


WHOLE = {"split": "rows:1"}  # the plain ones do not split in_proj_weight
MUON = dict(lr=0.02, momentum=0.95, weight_decay=0.1)
ADAMW = dict(lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0)


def beside_adamw(model, make_muon):
    hidden = [p for name, p in model.named_parameters() if model.is_hidden(name)]
    rest = [p for name, p in model.named_parameters() if not model.is_hidden(name)]
    return [make_muon(hidden), torch.optim.AdamW(rest, **ADAMW)]


def plain_muon(device, dtype):
    return trained(device, lambda model: beside_adamw(model, lambda hidden: PlainMuon(hidden, dtype=dtype, **MUON)))


def our_muon(device, orthogonalizer):
    options = dict(MUON, adamw_lr=ADAMW["lr"], orthogonalizer=orthogonalizer)
    return trained(device, lambda model: [gluon.Muon([{"params": model.named_parameters(), **WHOLE}], **options)])


@pytest.mark.parametrize("device", DEVICES)
def test_muon_matches_plain_muon_within_bfloat16_noise(device):
    half, single = plain_muon(device, torch.bfloat16), plain_muon(device, torch.float32)
    noise = distance(single, half)
    assert 1e-4 < noise < 0.1
    assert distance(half, our_muon(device, BFLOAT16)) < 2 * noise
    assert distance(single, our_muon(device, "float32:newton_schulz:5")) < noise
    # The noise is small enough to detect another orthogonalizer.
    assert distance(half, our_muon(device, "svd")) > 2 * noise


@needs_torch(2, 9)
@pytest.mark.parametrize("device", DEVICES)
def test_muon_matches_torchs_muon_within_bfloat16_noise(device):
    def make_torchs(hidden):
        return torch.optim.Muon(hidden, nesterov=True, ns_steps=5, adjust_lr_fn="original", **MUON)

    torchs = trained(device, lambda model: beside_adamw(model, make_torchs))
    noise = distance(plain_muon(device, torch.float32), torchs)
    assert 1e-4 < noise < 0.1
    assert distance(torchs, our_muon(device, BFLOAT16)) < 2 * noise


@pytest.mark.parametrize("nesterov", [False, True])
def test_sgd_matches_torchs_sgd(nesterov):
    def torchs(model):
        return [torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=nesterov)]

    def ours(model):
        momentum = "nesterov(0.9)" if nesterov else None
        return [gluon.Gluon(model.named_parameters(), preset="sgd", radius=0.05 / (1 - 0.9), momentum=momentum)]

    assert distance(trained("cpu", torchs, torch.float64), trained("cpu", ours, torch.float64)) < 1e-9


SCION = dict(lr=1e-3, momentum=0.1)


def scion_groups(model):
    named = list(model.named_parameters())
    return [
        {"params": [(n, p) for n, p in named if model.is_hidden(n)], "norm": "Spectral", "scale": 10.0, **WHOLE},
        {"params": [(n, p) for n, p in named if n.startswith(("embed", "lm_head"))], "norm": "Sign", "scale": 100.0},
        {"params": [(n, p) for n, p in named if p.dim() == 1], "norm": "BiasRMS", "scale": 5.0},
    ]


@pytest.mark.parametrize("device", DEVICES)
def test_scion_matches_plain_scion_within_bfloat16_noise(device):
    def plain(dtype):
        return trained(device, lambda model: [PlainScion(scion_groups(model), dtype=dtype, polar=jordan, **SCION)])

    def ours(orthogonalizer):
        return trained(device, lambda model: [gluon.Scion(scion_groups(model), orthogonalizer=orthogonalizer, **SCION)])

    half, single = plain(torch.bfloat16), plain(torch.float32)
    noise = distance(single, half)
    assert 1e-4 < noise < 0.1
    assert distance(half, ours(BFLOAT16)) < 2 * noise
    assert distance(half, ours("svd")) > 2 * noise


def test_scion_matches_plain_scion_in_float64():
    def run(make):
        return trained("cpu", lambda model: [make(scion_groups(model))], torch.float64)

    plain = run(lambda groups: PlainScion(groups, dtype=None, polar=exact, **SCION))
    assert distance(plain, run(lambda groups: gluon.Scion(groups, orthogonalizer="svd", **SCION))) < 1e-9
