"""Steps compared with straightforward implementations."""

import math

import pytest
import torch
from conftest import Net, close, momenta, same_bits, train, trained

import gluon


def polar(g):
    u, _, v = torch.linalg.svd(g, full_matrices=False)
    return u @ v


def one_layer(shape, **options):
    weight = torch.nn.Parameter(torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64))
    return weight, gluon.Gluon([("w", weight)], **options)


def gradients(shape, count):
    generator = torch.Generator().manual_seed(2)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(count)]


def sign(g):
    return g.sign()


def scaled_polar(g):
    return math.sqrt(g.size(0) / g.size(1)) * polar(g)


SPECTRAL = dict(radius={"hidden": 0.3}, momentum=0.9, orthogonalizer="svd")


@pytest.mark.parametrize(
    "shape, options, radius, direction",
    [
        ((5, 3), dict(preset="sign_descent", radius=0.1, momentum=0.8), 0.1, sign),
        *[(shape, SPECTRAL, 0.3, scaled_polar) for shape in [(4, 7), (7, 4), (1, 5), (5, 1)]],
    ],
)
def test_layers_follow_the_lmo_of_their_momentum(shape, options, radius, direction):
    weight, optimizer = one_layer(shape, **options)
    beta, expected, buffer = options["momentum"], weight.detach().clone(), torch.zeros_like(weight)
    for g in gradients(shape, 4):
        weight.grad = g
        optimizer.step()
        buffer = beta * buffer + (1 - beta) * g
        expected -= radius * direction(buffer)
    assert torch.allclose(weight, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("adjust, scale", [("original", math.sqrt(9 / 4)), ("match_rms_adamw", 0.2 * 3), ("none", 1)])
def test_muon_takes_the_public_arguments(nesterov, adjust, scale):
    weight = torch.nn.Parameter(gradients((9, 4), 1)[0])
    options = dict(lr=0.05, weight_decay=0.1, momentum=0.7, nesterov=nesterov, adjust_lr_fn=adjust)
    optimizer = gluon.Muon([("w", weight)], orthogonalizer="svd", **options)
    expected, buffer = weight.detach().clone(), torch.zeros_like(weight)
    for g in gradients((9, 4), 4)[1:]:
        weight.grad = g
        optimizer.step()
        buffer = 0.7 * buffer + 0.3 * g
        update = 0.3 * g + 0.7 * buffer if nesterov else buffer
        expected = (1 - 0.05 * 0.1) * expected - 0.05 * scale * polar(update)
    assert torch.allclose(weight, expected, atol=1e-12)
    assert optimizer.param_groups[0]["lr"] == 0.05
    assert optimizer.effective_radii() == {"w": pytest.approx(0.05)}


def test_muon_gives_vectors_to_adamw_with_its_own_rate():
    bias = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))
    other = torch.nn.Parameter(bias.detach().clone())
    weight = torch.nn.Parameter(torch.ones(3, 3))
    ours = gluon.Muon([("w", weight), ("b", bias)], lr=0.05, adamw_lr=0.01)
    theirs = torch.optim.AdamW([other], lr=0.01, betas=(0.9, 0.95), eps=1e-8, weight_decay=0)
    for g in gradients((3,), 5):
        weight.grad = torch.ones(3, 3)
        bias.grad, other.grad = g, g.clone()
        ours.step()
        theirs.step()
    assert torch.allclose(bias, other, atol=1e-12)


@pytest.mark.parametrize("unconstrained", [False, True])
def test_scion_takes_the_public_arguments(unconstrained):
    hidden = torch.nn.Parameter(gradients((6, 4), 1)[0])
    head = torch.nn.Parameter(gradients((5, 6), 1)[0])
    start = hidden.detach().clone(), head.detach().clone()
    groups = [
        {"params": [("hidden", hidden)], "norm": "Spectral", "norm_kwargs": {}, "scale": 2.0},
        {"params": [("head", head)], "norm": "Sign", "scale": 3.0},
    ]
    optimizer = gluon.Scion(groups, lr=0.25, momentum=0.1, unconstrained=unconstrained, orthogonalizer="svd")
    lmos = (lambda m: 2 * math.sqrt(6 / 4) * polar(m), lambda m: 3 * m.sign() / 6)
    expected, buffers = [x.clone() for x in start], [torch.zeros_like(x) for x in start]
    for step in zip(gradients((6, 4), 3), gradients((5, 6), 3)):
        hidden.grad, head.grad = step
        optimizer.step()
        for x, buffer, gradient, lmo in zip(expected, buffers, step, lmos):
            buffer.mul_(0.9).add_(gradient, alpha=0.1)
            x.mul_(1 if unconstrained else 1 - 0.25).sub_(0.25 * lmo(buffer))
    assert torch.allclose(hidden, expected[0], atol=1e-12) and torch.allclose(head, expected[1], atol=1e-12)


NORM_KWARGS = [{}, {"normalized": True}, {"transpose": True}, {"normalized": False, "transpose": True}]


@pytest.mark.parametrize("kwargs", NORM_KWARGS)
@pytest.mark.parametrize("norm", ["ColNorm", "RowNorm"])
def test_scions_row_and_column_norms(norm, kwargs):
    weight = torch.nn.Parameter(torch.zeros(3, 5, dtype=torch.float64))
    optimizer = gluon.Scion([("w", weight)], 1.0, 1.0, norm, kwargs, scale=1.0)
    g = gradients((3, 5), 1)[0]
    weight.grad = g
    optimizer.step()
    x = g.T if kwargs.get("transpose") else g
    if norm == "ColNorm":
        x = x / (x.norm(dim=0, keepdim=True) / math.sqrt(x.size(0)))
        x = x / x.size(1) if kwargs.get("normalized") else x
    else:
        x = x / x.norm(dim=1, keepdim=True)
        x = x / math.sqrt(x.size(1)) if kwargs.get("normalized", True) else x
    assert torch.allclose(weight, -(x.T if kwargs.get("transpose") else x), atol=1e-12)


PRESETS = [
    "unscion", "scion", "sphere", "muon", "muon(match_adam)", "normuon", "muonclip", "sign_descent", "normalized_descent",
    "sgd", "deterministic_gluon", "adamw",
]  # fmt: skip


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_descends_and_keeps_gradients(preset):
    model = Net()
    lr, steps = 0.1 if preset == "deterministic_gluon" else 1, 20 if preset == "sphere" else None
    optimizer = gluon.Gluon(model.named_parameters(), preset=preset, lr=lr, steps=steps)
    before = model.loss().item()
    for _ in range(5):
        optimizer.zero_grad()
        model.loss().backward()
        kept = [p.grad.clone() for p in model.parameters()]
        optimizer.step()
        assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), kept))
    assert model.loss().item() < before


def test_half_precision_parameters_keep_float32_momentum():
    model = Net(dtype=torch.bfloat16)
    optimizer = gluon.Gluon(model.named_parameters())
    train(model, optimizer, 2)
    assert all(p.dtype == torch.bfloat16 for p in model.parameters())
    assert all(momentum.dtype == torch.float32 for momentum in momenta(optimizer).values())


def test_gradient_accumulation_is_the_sum():
    a, b = Net(), Net()
    one, two = gluon.Gluon(a.named_parameters()), gluon.Gluon(b.named_parameters())
    (a.loss(0) + a.loss(1)).backward()
    b.loss(0).backward()
    b.loss(1).backward()
    one.step()
    two.step()
    assert close(a, b, atol=1e-5)


def test_run_repeats_with_the_same_bits():
    assert same_bits(trained(5)[0], trained(5)[0])
