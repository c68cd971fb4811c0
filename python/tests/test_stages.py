"""Normalised directions and decays: keys of groups and rules, formulas, and states."""

import copy
import io
import pickle

import pytest
import torch
from conftest import Net, same_bits, train, trained

import gluon

METHODS = {
    "normuon": dict(preset="normuon"),
    "adamuon": dict(geometry=[{"role": "hidden", "normalize": "adamuon(0.95)"}], preset="unscion"),
    "cautious": dict(geometry=[{"norm": "adamw", "radius": 0.01, "decay": "cautious(0.5,linear(9,9))"}]),
}


def gradients(shape, count):
    generator = torch.Generator().manual_seed(2)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(count)]


def polar(g):
    u, _, v = torch.linalg.svd(g, full_matrices=False)
    return u @ v


def test_normuon_with_cautious_decay_is_the_papers_formula():
    weight = torch.nn.Parameter(gradients((9, 4), 1)[0])
    x, buffer, v = weight.detach().clone(), torch.zeros(9, 4, dtype=torch.float64), 0.0
    group = {"params": [("w", weight)], "decay": "cautious(0.3,linear(20,20))"}
    optimizer = gluon.Gluon([group], preset="normuon", orthogonalizer="svd")
    for step, g in enumerate(gradients((9, 4), 21)[1:]):
        weight.grad = g
        optimizer.step()
        buffer = 0.95 * buffer + 0.05 * g
        o = polar(0.05 * g + 0.95 * buffer)
        v = 0.95 * v + 0.05 * o.square().mean(1, keepdim=True)
        u = o / v.sqrt()
        u = u * (o.norm() / u.norm()) * (9 / 4) ** 0.5
        x = x - 0.02 * (u + 0.3 * (1 - step / 20) * torch.where(u * x >= 0, x, torch.zeros_like(x)))
        assert torch.allclose(weight, x, rtol=0, atol=1e-12), step


@pytest.mark.parametrize("layout", ["names", "indices"])
@pytest.mark.parametrize("method", METHODS)
def test_a_saved_state_resumes_with_the_same_bits(method, layout):
    model, optimizer = trained(3, **METHODS[method])
    file = io.BytesIO()
    torch.save(optimizer.state_dict(layout=layout), file)
    file.seek(0)
    other = copy.deepcopy(model)
    resumed = gluon.Gluon(list(other.named_parameters())[::-1], **METHODS[method])
    resumed.load_state_dict(torch.load(file))
    copied_model, copied = pickle.loads(pickle.dumps((model, optimizer)))
    train(model, optimizer, 3, 3)
    train(other, resumed, 3, 3)
    train(copied_model, copied, 3, 3)
    assert same_bits(model, other) and same_bits(model, copied_model)
    assert not same_bits(model, trained(6)[0])


def test_second_moments_of_rows_and_entries_have_names_of_their_own():
    for method, sizes in (("normuon", (12, 1)), ("adamuon", (12, 6))):
        model, optimizer = trained(1, **METHODS[method])
        assert optimizer.state_dict("names")["state"]["up.weight"]["normalize.second"].shape == sizes
        numbers = [name for name, _ in model.named_parameters()].index("up.weight")
        entry = optimizer.state_dict(layout="indices")["state"][numbers]
        assert set(entry) == {"momentum_buffer", "second_momentum_buffer", "step"}
        assert entry["second_momentum_buffer"].shape == sizes


def test_second_moments_of_other_systems_are_refused():
    weight = torch.nn.Parameter(torch.ones(3, 2))
    optimizer = gluon.Gluon([("w", weight)], preset="normuon")
    entry = {"momentum_buffer": torch.ones(3, 2), "second_momentum_buffer": torch.ones(3, 1)}
    with pytest.raises(ValueError, match="has 'second_momentum_buffer'; allowed are momentum_buffer, exp_avg"):
        optimizer.load_state_dict({"state": {0: entry}, "param_groups": [{"params": [0], "lr": 1}]})


def test_a_changed_normalisation_starts_anew_and_keeps_momentum():
    model, optimizer = trained(2, preset="muon")
    other, fresh = copy.deepcopy((model, optimizer))
    optimizer.param_groups[0]["normalize"] = "normuon(0.95)"
    train(model, optimizer, 2, 2)
    train(other, fresh, 2, 2)
    assert not same_bits(model, other)
    assert optimizer.geometry.rules[0]["normalize"] == "normuon(0.95)"
    report = optimizer.routing_report()
    assert report.count("normalize normuon(0.95)") == 1, report  # AdamW's layers have none
    # Rows become entries and rows again.
    for name in ("adamuon(0.9)", "normuon(0.9)", "none", None):
        optimizer.param_groups[0]["normalize"] = name
        train(model, optimizer, 1, 4)
    assert "normalize" not in optimizer.routing_report()


def test_decay_and_weight_decay_of_a_group_are_one():
    both = {"params": [("w", torch.nn.Parameter(torch.ones(2, 2)))], "weight_decay": 0.1, "decay": "cautious(0.2)"}
    with pytest.raises(ValueError, match="rule: 'weight_decay' and 'decay' set the same, got 0.1 and cautious"):
        gluon.Gluon([both])
    with pytest.raises(ValueError, match="'weight_decay' and 'decay' set the same"):
        gluon.Geometry([{"weight_decay": 0.1, "decay": 0.2}])
    # A group's replaces the preset's, and a number is one of torch's.
    optimizer = gluon.Gluon([{**both, "weight_decay": None}], preset="adamw")
    assert "decay cautious(0.2)" in optimizer.routing_report() and "weight decay" not in optimizer.routing_report()
    optimizer.param_groups[0].update(decay=0.3)
    assert optimizer.geometry.rules[0]["weight_decay"] == 0.3 and "decay" not in optimizer.geometry.rules[0]


def test_a_group_of_muon_may_decay_cautiously(model):
    for weight_decay in (0.0, 0.1):
        optimizer = gluon.Muon(model.named_parameters(), weight_decay=weight_decay)
        optimizer.param_groups[0]["decay"] = "cautious(0.2)"
        report = optimizer.routing_report()
        assert report.count("decay cautious(0.2)") == 4 and "weight decay" not in report, report
    optimizer.param_groups[0]["weight_decay"] = 0.3
    with pytest.raises(ValueError, match="'weight_decay' and 'decay' set the same, got 0.3 and cautious"):
        optimizer.routing_report()


def test_rules_survive_pickling():
    rules = [{"norm": "spectral", "normalize": "normuon(0.95)", "radius": 0.5, "decay": "cautious(0.01)"}]
    geometry = pickle.loads(pickle.dumps(gluon.Geometry(rules)))
    assert geometry.rules == rules
    assert gluon.Geometry([{"decay": 0.5}]).rules[0]["weight_decay"] == 0.5


@pytest.mark.parametrize(
    "rule, text",
    [
        ({"normalize": "rows"}, "normalize: unknown name 'rows'; allowed are none, normuon"),
        ({"normalize": "normuon(1)"}, r"Normalize: beta2 must be in \[0, 1\), got 1"),
        ({"normalize": 0.9}, "'normalize' cannot be 0.9"),
        ({"normalize": "normuon(0.9)", "ball": 2}, "a ball holds steps along the LMO alone"),
        ({"decay": "often"}, "decay: unknown name 'often'; allowed are a number, decoupled"),
        ({"decay": -1}, "weight decay must be >= 0 and finite, got -1"),
        ({"decay": "cautious(0.1,up)"}, "schedule: unknown name 'up'"),
        ({"decay": "cautious(0.1)", "sphere": "auto"}, "exclude each other, got decay cautious"),
    ],
)
def test_bad_rules(rule, text):
    with pytest.raises(ValueError, match=text):
        gluon.Geometry([rule])


def test_groups_follow_a_changed_decay():
    model, optimizer = trained(2)
    optimizer.param_groups[0]["decay"] = "cautious(0.5)"
    train(model, optimizer, 2, 2)
    other = Net()
    plain = gluon.Gluon([{"params": list(other.named_parameters()), "decay": "cautious(0)"}])
    train(other, plain, 2)
    plain.param_groups[0]["decay"] = "cautious(0.5)"
    train(other, plain, 2, 2)
    assert same_bits(model, other) and not same_bits(model, trained(4)[0])
