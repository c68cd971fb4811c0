"""A model that is moved or cast after its optimizer was made: the same parameters with another dtype or device."""

import pytest
import torch
from conftest import Net, same_bits, train

import gluon

MAKERS = [gluon.Gluon, gluon.Muon, gluon.Scion]


@pytest.mark.parametrize("make", MAKERS)
def test_before_the_first_step_it_is_as_if_made_later(make):
    model, later = Net(), Net()
    optimizer = make(model)
    model.double()
    train(model, optimizer, 3)
    later.double()
    train(later, make(later), 3)
    assert model.up.weight.dtype == torch.float64
    assert same_bits(model, later)


def test_before_the_first_step_lr_and_momentum_of_groups_stay(model):
    later = Net().double()
    optimizers = []
    for one in (model, later):
        optimizers.append(gluon.Muon([{"params": one.named_parameters(), "momentum": 0.5, "lr": 0.1}]))
        one.double()
    train(model, optimizers[0], 3)
    train(later, optimizers[1], 3)
    assert same_bits(model, later)


def test_momentum_loaded_before_the_move_stays(model):
    """States of other optimizers may have momentum and no count of steps."""
    weight = torch.nn.Parameter(torch.zeros(2, 3))
    theirs = {
        "state": {0: {"momentum_buffer": torch.ones(2, 3)}},
        "param_groups": [{"lr": 0.1, "momentum": 0.9, "params": [0]}],
    }
    optimizer = gluon.Gluon([("up.weight", weight)], preset="sign_descent", radius=0.5)
    optimizer.load_state_dict(theirs)
    assert optimizer.steps_taken == 0
    weight.data = weight.data.double()
    weight.grad = torch.zeros(2, 3, dtype=torch.float64)
    optimizer.step()
    assert torch.equal(weight.detach(), torch.full((2, 3), -0.5, dtype=torch.float64))


@pytest.mark.parametrize("make", MAKERS)
def test_after_a_step_it_raises_and_says_what_to_do(make, model):
    optimizer = make(model)
    train(model, optimizer, 2)
    model.double()
    before = {name: p.clone() for name, p in model.named_parameters()}
    optimizer.zero_grad()
    model.loss(2).backward()
    expected = (
        r"'embed.weight' was torch.float32 on cpu and is torch.float64 on cpu after 2 steps; move a model before "
        r"the first step, or call optimizer.load_state_dict\(optimizer.state_dict\(\)\) to take the state along"
    )
    with pytest.raises(ValueError, match=expected):
        optimizer.step()
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.step()
    assert optimizer.steps_taken == 3


def test_the_state_taken_along_is_the_old_one(model):
    """Up to float32, a run that goes on in float64 is the one that stayed."""
    other = Net()
    optimizer, stayed = gluon.Muon(model), gluon.Muon(other)
    train(model, optimizer, 2)
    train(other, stayed, 3)
    model.double()
    optimizer.load_state_dict(optimizer.state_dict())
    train(model, optimizer, 1, start=2)
    for p, q in zip(model.parameters(), other.parameters()):
        assert (p - q).abs().max() <= 1e-4 * q.abs().max()


def test_a_frozen_parameter_may_change(model):
    model.embed.weight.requires_grad_(False)
    optimizer = gluon.Muon(model)
    train(model, optimizer, 1)
    model.embed.double()
    optimizer.zero_grad()
    for parameter in model.up.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    assert optimizer.steps_taken == 2
