"""States in torch's layout, and those of torch's own optimizers."""

import copy
import io
import math
import pickle

import pytest
import torch
from conftest import Net, close, momenta, needs_torch, same_bits, train, trained

import gluon


@pytest.mark.parametrize("make", [gluon.Gluon, gluon.Muon, gluon.Scion])
def test_saving_and_copying_change_no_bit_of_the_run(make):
    model, optimizer = trained(0, make)
    for step in range(4):
        train(model, optimizer, 1, step)
        optimizer.state_dict()
        optimizer.state_dict(layout="indices")
        copy.deepcopy(optimizer)
        pickle.dumps(optimizer)
    assert same_bits(model, trained(4, make)[0])


@pytest.mark.parametrize("make", [gluon.Gluon, gluon.Muon])
def test_a_state_by_indices_is_torchs_and_resumes_with_the_same_bits(make):
    model, optimizer = trained(3, make)
    groups = [{"params": list(model.named_parameters())[:4]}, {"params": list(model.named_parameters())[4:]}]
    optimizer = make(groups)
    train(model, optimizer, 2)
    saved = optimizer.state_dict(layout="indices")
    plain = torch.optim.AdamW([{"params": [p for _, p in group["params"]]} for group in groups])
    train(model, plain, 1, 2)
    theirs = plain.state_dict()
    assert [group["params"] for group in saved["param_groups"]] == [group["params"] for group in theirs["param_groups"]]
    assert set(saved["state"]) == set(theirs["state"])
    assert {kind for entry in saved["state"].values() for kind in entry} <= {
        "momentum_buffer", "exp_avg", "exp_avg_sq", "step",
    }  # fmt: skip

    file = io.BytesIO()
    torch.save(saved, file)
    file.seek(0)
    other = copy.deepcopy(model)
    named = dict(other.named_parameters())
    resumed = make([{"params": [(n, named[n]) for n, _ in group["params"]]} for group in groups[::-1]])
    resumed.load_state_dict(torch.load(file))
    assert resumed.steps_taken == 2
    train(model, optimizer, 2, 2)
    train(other, resumed, 2, 2)
    assert same_bits(model, other)


def test_bad_states_by_indices_are_rejected():
    _, optimizer = trained(1)
    with pytest.raises(ValueError, match="state_dict: unknown layout 'index'; allowed are names, indices"):
        optimizer.state_dict(layout="index")
    for change, text in [
        (lambda s: s["param_groups"][0].pop("param_names"), "needs as many 'param_names' as 'params'"),
        (lambda s: s["state"].update({99: {}}), "no group has the parameter 99"),
        (lambda s: s["state"][1].update(momentum_buffer=torch.ones(2)), r"'momentum/up.weight' has shape \[2\]"),
    ]:
        bad = optimizer.state_dict(layout="indices")
        change(bad)
        with pytest.raises(ValueError, match=text):
            optimizer.load_state_dict(bad)


def gradients(shape, count):
    generator = torch.Generator().manual_seed(2)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(count)]


def test_adamws_state_continues_the_run_of_layers_left_to_adamw():
    bias = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))
    other = torch.nn.Parameter(bias.detach().clone())
    theirs = torch.optim.AdamW([other], lr=0.01, betas=(0.9, 0.95), eps=1e-8, weight_decay=0)
    grads = gradients((3,), 8)
    for g in grads[:4]:
        other.grad = g.clone()
        theirs.step()
    with torch.no_grad():
        bias.copy_(other)
    ours = gluon.Muon([("b", bias)], lr=0.05, adamw_lr=0.01)
    ours.load_state_dict(theirs.state_dict())
    assert ours.steps_taken == 4 and ours.param_groups[0]["lr"] == 0.05
    for g in grads[4:]:
        bias.grad, other.grad = g, g.clone()
        ours.step()
        theirs.step()
    assert torch.allclose(bias, other, rtol=0, atol=1e-12)


def polar(g):
    u, _, v = torch.linalg.svd(g, full_matrices=False)
    return u @ v


def test_muons_state_continues_its_run():
    weight = torch.nn.Parameter(gradients((9, 4), 1)[0])
    expected, buffer = weight.detach().clone(), torch.zeros_like(weight)
    optimizer = None
    for step, g in enumerate(gradients((9, 4), 7)[1:]):
        if step == 3:  # torch.optim.Muon's state
            optimizer = gluon.Muon([("w", weight)], lr=0.05, momentum=0.7, orthogonalizer="svd")
            options = {"lr": 0.3, "momentum": 0.1, "nesterov": True, "ns_steps": 5, "params": [0]}
            optimizer.load_state_dict({"state": {0: {"momentum_buffer": buffer.clone()}}, "param_groups": [options]})
            with torch.no_grad():
                weight.copy_(expected)
        weight.grad = g
        if optimizer is not None:
            optimizer.step()
        buffer = 0.7 * buffer + 0.3 * g
        expected = expected - 0.05 * math.sqrt(9 / 4) * polar(0.3 * g + 0.7 * buffer)
    assert torch.allclose(weight, expected, rtol=0, atol=1e-12)
    assert optimizer.param_groups[0]["lr"] == 0.05 and optimizer.param_groups[0]["momentum"] == 0.7


@needs_torch(2, 9)
def test_the_state_of_torchs_muon_is_loaded(model):
    hidden = [model.up.weight, model.down.weight]
    theirs = torch.optim.Muon(hidden, lr=0.01)
    train(model, theirs, 2)
    optimizer = gluon.Muon(model.named_parameters())
    optimizer.load_torch_state(theirs.state_dict(), hidden)
    momentum = optimizer.state_dict("names")["state"]["up.weight"]["momentum"]
    assert torch.equal(momentum, theirs.state[model.up.weight]["momentum_buffer"])


def momentum_state(*parameters):
    state = {number: {"momentum_buffer": torch.full_like(p, number + 1.0)} for number, p in enumerate(parameters)}
    return {"state": state, "param_groups": [{"lr": 0.1, "params": list(range(len(parameters)))}]}


def test_two_states_of_torch_become_one(model):
    hidden = [model.down.weight, model.up.weight]
    others = [p for p in model.parameters() if all(p is not h for h in hidden)]
    adamw = torch.optim.AdamW([{"params": others[:2]}, {"params": others[2:], "weight_decay": 0}], lr=1e-3)
    train(model, adamw, 3)
    optimizer = gluon.Muon(model.named_parameters())
    optimizer.load_torch_state(momentum_state(*hidden), hidden)
    optimizer.load_torch_state(adamw.state_dict(), [{"params": others[:2]}, {"params": others[2:]}])
    state = optimizer.state_dict("names")["state"]
    assert state["down.weight"]["momentum"].unique().tolist() == [1] and optimizer.steps_taken == 3
    assert state["up.weight"]["momentum"].unique().tolist() == [2]
    for name, p in model.named_parameters():
        if all(p is not h for h in hidden):
            assert torch.equal(state[name]["adamw.first"], adamw.state[p]["exp_avg"])
            assert torch.equal(state[name]["adamw.second"], adamw.state[p]["exp_avg_sq"])
            assert state[name]["adamw.steps"] == 3


def test_adamws_first_moment_becomes_momentum_and_parameters_without_a_state_keep_theirs():
    model, optimizer = trained(1)
    start = momenta(optimizer)
    adamw = torch.optim.AdamW(model.parameters())
    model.head.weight.grad = None
    adamw.step()
    adamw.state_dict()
    optimizer.load_state_dict(adamw.state_dict())
    loaded = momenta(optimizer)
    assert torch.equal(loaded["up.weight"], adamw.state[model.up.weight]["exp_avg"])
    assert torch.equal(loaded["head.weight"], start["head.weight"])


def test_the_state_of_a_frozen_parameter_waits_for_it(model):
    model.up.weight.requires_grad_(False)
    optimizer = gluon.Gluon(model.named_parameters())
    optimizer.load_torch_state(momentum_state(model.up.weight), [model.up.weight])
    model.up.weight.requires_grad_(True)
    assert momenta(optimizer)["up.weight"].unique().tolist() == [1]


def test_states_of_torch_that_do_not_fit_are_refused_and_change_nothing():
    model, optimizer = trained(1, gluon.Muon)
    before = momenta_and_moments(optimizer)
    up, embed = model.up.weight, model.embed.weight
    wrong = momentum_state(up)
    wrong["state"][0]["momentum_buffer"] = torch.ones(6, 12)
    amsgrad = momentum_state(up)
    amsgrad["state"][0]["max_exp_avg_sq"] = torch.ones(12, 6)
    empty = momentum_state(up)
    empty["state"][0] = {"step": 3}
    uphill = momentum_state(up)
    uphill["param_groups"][0]["maximize"] = True
    sgd = torch.optim.SGD(model.parameters(), lr=1)
    for state, params, text in [
        (wrong, [up], r"parameter 0, here 'up.weight', has a state of shape \[6, 12\], expected \[12, 6\]"),
        (amsgrad, [up], "has 'max_exp_avg_sq'; allowed are momentum_buffer, exp_avg, exp_avg_sq, step"),
        (empty, [up], "here 'up.weight', has neither momentum_buffer nor exp_avg"),
        (uphill, [up], "maximizes; its momentum points uphill"),
        (sgd.state_dict(), None, "not saved by a Gluon optimizer, Muon, AdamW or Adam: SGD's momentum is a sum"),
        (momentum_state(embed), [embed], "here 'embed.weight', is left to AdamW, and its state has no exp_avg"),
        (momentum_state(up), [up, embed], "expected the 1 parameters of the state, got 2"),
        (momentum_state(up), [torch.ones(2)], "number 0 is no parameter of this optimizer"),
        (momentum_state(up), None, r"groups of \[1\] parameters, the optimizer of \[8\].*load_torch_state"),
    ]:
        with pytest.raises(ValueError, match=text):
            optimizer.load_torch_state(state, params)
        after = momenta_and_moments(optimizer)
        assert before.keys() == after.keys() and all(torch.equal(before[key], after[key]) for key in before)


def momenta_and_moments(optimizer):
    state = optimizer.state_dict("names")["state"]
    return {(name, kind): tensor for name, kinds in state.items() for kind, tensor in kinds.items()}


def test_a_model_trains_on_from_adamw():
    model = Net()
    adamw = torch.optim.AdamW(model.parameters(), lr=1e-3)
    train(model, adamw, 3)
    optimizer = gluon.Gluon(model.named_parameters(), preset="adamw", adamw_betas=(0.9, 0.999), radius=1e-3)
    optimizer.param_groups[0]["weight_decay"] = 0.01
    optimizer.load_state_dict(adamw.state_dict())
    other = copy.deepcopy(model)
    continued = torch.optim.AdamW(other.parameters(), lr=1e-3)
    continued.load_state_dict(adamw.state_dict())
    train(model, optimizer, 3, 3)
    train(other, continued, 3, 3)
    assert close(model, other, atol=1e-6)
