"""Bad input raises ValueError with the library's message; roles and names."""

import copy
import math
import pickle
import sys

import pytest
import torch
from conftest import Net, train

import gluon


@pytest.mark.parametrize(
    "options, text",
    [
        (dict(preset="lion"), "preset: unknown name 'lion'; allowed are muon, muon"),
        (dict(radius={"hiden": 1}), "unknown radius 'hiden'; allowed are hidden"),
        (dict(radius={"hidden": -1}), "must be"),
        (dict(momentum=1.5), r"beta must be in \[0, 1\), got 1.5"),
        (dict(momentum="heavy"), "momentum: unknown name 'heavy'"),
        (dict(orthogonalizer="qr"), "qr"),
        (dict(schedule="step"), "step"),
        (dict(non_finite="ignore"), "allowed are error, skip"),
        (dict(lr=-1), "radius multiplier must be >= 0 and finite, got -1"),
        (dict(geometry=[]), "expected at least one rule"),
        (dict(geometry=[{"nrm": "spectral"}]), "unknown key 'nrm'; allowed are pattern, role"),
        (dict(geometry=[{"rank": "two"}]), "'rank' cannot be 'two'"),
        (dict(geometry=[{"role": "body"}]), "role: unknown name 'body'"),
        (dict(geometry=[{"role": "conv"}]), "no rule for layer 'w'"),
        (dict(geometry=[{"norm": "nuclear"}]), "nuclear"),
        (dict(geometry=[{"pattern": "v*"}, {}]), "the pattern 'v\\*' of a rule matches no layer"),
        (dict(geometry=[{"sphere": "own"}]), "sphere: expected a number or auto, got 'own'"),
        (dict(geometry=[{"sphere": 0}]), "Sphere: the radius must be > 0 and finite, got 0"),
        (dict(geometry=[{"sphere": "auto", "ball": 2}]), "exclude each other, got ball 2 and sphere auto"),
        (dict(geometry=[{}], radius={"hidden": 1}), "only for presets"),
        (dict(geometry=[{}], steps=9), "steps: only for preset sphere"),
        (dict(radius="auto"), "sphere: steps must be >= 1, the length of the run, .* got 0"),
        (dict(preset="unscion", radius="auto"), "radius: preset unscion has no law for 'auto', only sphere has one"),
        (dict(radius="large"), "radius: expected a number, a dict or 'auto', got 'large'"),
        (dict(preset="muon", steps=9), "steps: only preset sphere takes its radii from them, got preset muon"),
        (dict(preset="sphere"), "sphere: steps must be >= 1, the length of the run, .* got 0"),
        (dict(preset="sphere", steps=0), r"steps must be a whole number in 1..2\^53, got 0"),
        (dict(roles={"x": "head"}), "no parameter matches 'x'"),
        (dict(roles={"w": "tail"}), "role: unknown name 'tail'"),
        (dict(adamw_betas=(0.9, 1.0)), r"beta2 must be in \[0, 1\)"),
        (dict(make=gluon.Muon, adjust_lr_fn="sqrt"), "unknown adjust_lr_fn 'sqrt'"),
        (dict(make=gluon.Muon, ns_steps=5, orthogonalizer="svd"), "cannot be combined"),
        (dict(make=gluon.Muon, lr=0), "lr must be > 0"),
        (dict(make=gluon.Scion, norm="Nuclear"), "unknown norm 'Nuclear'"),
        (dict(make=gluon.Scion, momentum=0), r"must be in \(0, 1\], got 0"),
    ],
)
def test_bad_options(options, text):
    make = options.pop("make", gluon.Gluon)
    with pytest.raises(ValueError, match=text):
        make([("w", torch.nn.Parameter(torch.ones(2, 2)))], **options)


def parameter(*sizes, dtype=torch.float32):
    return torch.nn.Parameter(torch.ones(*sizes, dtype=dtype), requires_grad=dtype != torch.int64)


P = parameter(2, 2)


@pytest.mark.filterwarnings("ignore:.*duplicate parameters")
@pytest.mark.parametrize(
    "parameters, kind, text",
    [
        ([], ValueError, "at least one"),
        ([("a", P), parameter(1)], ValueError, "some have a name"),
        ([("a", P), ("a", parameter(2))], ValueError, "two layers are called 'a'"),
        ([("a", P), ("b", P)], ValueError, "share one parameter"),
        ([("c", parameter(2, 2, dtype=torch.complex64))], ValueError, "must be a dense floating point tensor"),
        ([("i", parameter(2, 2, dtype=torch.int64))], ValueError, "expected at least one layer"),
        (P, TypeError, "got a tensor"),
        ([("a", P), {"params": [P]}], TypeError, "got both"),
        ([("a", "text")], TypeError, ""),
    ],
)
def test_bad_parameters(parameters, kind, text):
    with pytest.raises(kind, match=text):
        gluon.Gluon(parameters)


def test_bad_gradient_moves_nothing(model):
    optimizer = gluon.Gluon(model.named_parameters())
    model.loss().backward()
    model.head.weight.grad[0, 0] = float("nan")
    start = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(gluon.NonFiniteGradient, match="layer 'head.weight' holds NaN or Inf at step 0"):
        optimizer.step()
    assert issubclass(gluon.NonFiniteGradient, ValueError)
    assert all(torch.equal(p, x) for p, x in zip(model.parameters(), start))
    skipping = gluon.Gluon(model.named_parameters(), non_finite="skip")
    skipping.step()
    assert skipping.steps_skipped == 1 and skipping.steps_taken == 0


def test_sparse_gradient_is_rejected():
    embedding = torch.nn.Embedding(5, 3, sparse=True)
    optimizer = gluon.Gluon(embedding.named_parameters(prefix="embed"))
    embedding(torch.tensor([1, 2])).sum().backward()
    with pytest.raises(ValueError, match="'embed.weight' needs a gradient like itself, Strided Float"):
        optimizer.step()


def test_unnamed_parameters_warn_and_get_roles_from_shapes():
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(4, 2))
    with pytest.warns(UserWarning, match="roles are guessed from their shapes"):
        optimizer = gluon.Gluon(model.parameters())
    report = optimizer.routing_report()
    assert "conv" in report and "hidden" in report
    with pytest.warns(UserWarning, match="guessed"):
        optimizer = gluon.Gluon([{"params": model[0].parameters()}, {"params": [model[2].weight], "role": "head"}])
    assert "head" in optimizer.routing_report()


@pytest.mark.parametrize("make", [gluon.Gluon, gluon.Muon, gluon.Scion])
def test_unnamed_matrices_in_groups_are_refused(model, make):
    """As Hugging Face's Trainer groups them."""
    decaying = {"params": [p for p in model.parameters() if p.dim() == 2]}
    with pytest.raises(ValueError, match=r"number 0 of a group is a matrix of shape \[11, 6\] without a name"):
        make([decaying, {"params": [model.up.bias]}])
    optimizer = make(model.norm.named_parameters())
    with pytest.raises(ValueError, match="without a name"):
        optimizer.add_param_group(decaying)
    assert len(optimizer.param_groups) == 1


def test_unnamed_parameters_in_groups_with_roles_do_not_warn(model, recwarn):
    hidden, vectors = [model.up.weight, model.down.weight], [model.up.bias]
    gluon.Gluon([{"params": hidden, "role": "hidden"}, {"params": vectors, "role": "vector"}])
    gluon.Muon([{"params": hidden, "use_muon": True}, {"params": vectors, "use_muon": False}])
    gluon.Scion([{"params": hidden, "norm": "Spectral", "scale": 50.0}, {"params": vectors, "norm": "BiasRMS"}])
    assert not recwarn.list


def test_module_types_determine_roles():
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.words = torch.nn.Embedding(7, 4)
            self.conv = torch.nn.Conv1d(4, 4, 3)
            self.back = torch.nn.ConvTranspose1d(4, 4, 3)
            self.out = torch.nn.Linear(4, 7, bias=False)
            self.out.weight = self.words.weight

    with pytest.raises(ValueError, match="'back.weight' is a transposed convolution"):
        gluon.Gluon(Tied())
    report = gluon.Gluon(Tied(), roles={"back.weight": "conv"}).routing_report().splitlines()
    assert [line.split()[0] for line in report] == ["group", "conv", "embedding", "vector"]


def test_wrappers_do_not_change_names(model):
    wrapped = [(f"module._orig_mod.{name}", p) for name, p in model.named_parameters()]
    optimizer = gluon.Gluon(wrapped)
    optimizer.load_state_dict(gluon.Gluon(Net().named_parameters()).state_dict())
    assert "embed.weight" in optimizer.state_dict("names")["state"]


def test_rules_precede_the_preset(model):
    optimizer = gluon.Gluon(
        model.named_parameters(), preset="unscion", geometry=[{"pattern": "up.*", "norm": "max_entry", "radius": 0.5}]
    )
    assert "up.*" in optimizer.routing_report() and "embedding" in optimizer.routing_report()
    alone = [{"norm": "euclidean", "radius": "power(0.1)"}]
    assert gluon.Gluon(model.named_parameters(), geometry=alone).geometry.rules == alone


def test_fused_projections_are_split(model):
    weight = torch.nn.Parameter(torch.randn(12, 4))
    rule = {"norm": "spectral(svd)", "radius": 0.1, "split": "qkv"}
    optimizer = gluon.Gluon([("qkv.weight", weight)], geometry=[rule])
    weight.grad = torch.randn(12, 4)
    start = weight.detach().clone()
    optimizer.step()
    assert sorted(optimizer.effective_radii()) == ["qkv.weight[0]", "qkv.weight[1]", "qkv.weight[2]"]
    for k in range(3):
        moved = (weight - start)[4 * k : 4 * k + 4] / 0.1
        assert torch.allclose(moved @ moved.T, torch.eye(4), atol=1e-4)


def test_shards_of_an_old_torch_and_missing_process_groups_are_rejected(model, monkeypatch):
    with pytest.raises(ValueError, match=r"call torch.distributed.init_process_group\(\) before"):
        gluon.Scion(model.named_parameters(), process_group="nccl")

    class Part(torch.nn.Parameter):
        device_mesh = "a mesh"

    monkeypatch.setitem(sys.modules, "torch.distributed.tensor", None)
    with pytest.raises(ValueError, match="'w' is a DTensor, which needs torch 2.5 or later; this is"):
        gluon.Gluon([("w", Part(torch.ones(2, 2)))])


def test_muon_with_aux_adam_groups(model):
    hidden, rest = [("up", model.up.weight)], [("bias", model.up.bias)]
    auxiliary = dict(params=rest, use_muon=False, lr=4e-4, betas=(0.8, 0.9), eps=1e-10)
    optimizer = gluon.Muon([dict(params=hidden, use_muon=True, lr=0.03, weight_decay=0.01), auxiliary])
    assert optimizer._options["adamw_betas"] == (0.8, 0.9) and optimizer._options["adamw_eps"] == 1e-10
    train(model, optimizer, 1)
    assert optimizer.effective_radii() == {"up": pytest.approx(0.03), "bias": pytest.approx(4e-4)}
    other = dict(params=[("norm", model.norm.weight)], use_muon=False, betas=(0.9, 0.95))
    with pytest.raises(ValueError, match="must have the same betas"):
        gluon.Muon([auxiliary, other])
    with pytest.raises(ValueError, match="a group and adamw_eps= disagree"):
        gluon.Muon([auxiliary], adamw_eps=1e-8)


def test_scion_keeps_its_momentum_setting(model):
    assert gluon.Scion(model.named_parameters(), momentum=0.1).param_groups[0]["momentum"] == 0.1


def test_initial_weights_have_the_norm_of_the_ball(model):
    optimizer = gluon.Gluon(model.named_parameters(), orthogonalizer="svd")
    optimizer.initialize(ball=2.0, seed=3)
    assert gluon.norms.norm(model.up.weight, "scaled(sqrt(n/m),spectral)").item() == pytest.approx(2, rel=0.2)


def test_layers_stay_on_their_spheres(model):
    rules = [{"pattern": "up.weight", "sphere": "auto"}, {"pattern": "down.weight", "sphere": 3}, {"norm": "adamw"}]
    geometry = gluon.Geometry([{"norm": "spectral", "radius": 0.1, **rule} for rule in rules])
    assert [rule.get("sphere") for rule in pickle.loads(pickle.dumps(geometry)).rules] == ["auto", 3.0, None]
    optimizer = gluon.Gluon(model.named_parameters(), geometry=geometry)
    optimizer.start_on_spheres()
    lengths = [math.sqrt(min(model.up.weight.shape)), 3]
    for _ in range(3):
        assert [model.up.weight.norm().item(), model.down.weight.norm().item()] == pytest.approx(lengths, rel=1e-6)
        optimizer.zero_grad()
        model.loss().backward()
        optimizer.step()
    assert "sphere auto" in optimizer.routing_report()


def test_preset_sphere_takes_its_steps_from_the_run(model):
    optimizer = gluon.Gluon(model.named_parameters(), radius="auto", steps=400)
    assert "0.0409627 = 0.45 K^-0.4 with K = 400" in optimizer.routing_report()
    assert "0.0409627 = 0.45 K^-0.4 with K = 400" in copy.deepcopy(optimizer).routing_report()
    optimizer.start_on_spheres()
    for factor in (1, 399 / 400):  # linear to 0
        model.loss().backward()
        optimizer.step()
        assert optimizer.effective_radii()["up.weight"] == pytest.approx(0.45 * 400**-0.4 * factor)
    same = gluon.Gluon(model.named_parameters(), preset="sphere", steps=400)
    assert same.routing_report() == optimizer.routing_report()
    double = gluon.Gluon(model.named_parameters(), preset="sphere", radius={"factor": 2}, steps=400, schedule="constant")
    model.loss().backward()
    double.step()
    assert double.effective_radii()["up.weight"] == pytest.approx(0.9 * 400**-0.4)


def test_group_may_have_a_sphere(model):
    groups = [{"params": [("up.weight", model.up.weight)], "sphere": "auto"}, {"params": [("b", model.down.bias)]}]
    model.loss().backward()
    gluon.Gluon(groups).step()
    m, n = model.up.weight.shape
    assert model.up.weight.norm().item() == pytest.approx(math.sqrt(min(m, n) * m / n), rel=1e-6)


def test_version():
    assert gluon.__version__.count(".") == 2
