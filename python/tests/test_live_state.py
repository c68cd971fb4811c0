"""optimizer.state, and torch.distributed.checkpoint over it in one process. test_fsdp.py has several."""

import copy

import pytest
import torch
from conftest import Net, momenta, needs_torch, same_bits, train, trained

import gluon

MAKERS = [gluon.Gluon, gluon.Muon, gluon.Scion]
needs_state_dict = needs_torch(2, 5)


def test_state_has_the_momentum_of_each_parameter_by_torchs_names():
    model, optimizer = trained(3, gluon.Muon)
    saved = optimizer.state_dict("names")["state"]
    assert len(optimizer.state) == len(list(model.parameters())) and list(optimizer.state) == list(model.parameters())
    for name, parameter in model.named_parameters():
        entry = optimizer.state[parameter]
        assert int(entry.pop("step")) == 3
        if name in ("up.weight", "down.weight"):
            assert torch.equal(entry.pop("momentum_buffer"), saved[name]["momentum"])
        else:
            assert torch.equal(entry.pop("exp_avg"), saved[name]["adamw.first"])
            assert torch.equal(entry.pop("exp_avg_sq"), saved[name]["adamw.second"])
        assert not entry


def test_state_is_there_from_the_start_and_follows_every_step(model):
    optimizer = gluon.Gluon(model.named_parameters())
    state = optimizer.state
    assert state and not state[model.up.weight]["momentum_buffer"].any()
    train(model, optimizer, 1)
    assert torch.equal(state[model.up.weight]["momentum_buffer"], momenta(optimizer)["up.weight"])
    copied = copy.deepcopy(optimizer)
    (entry,) = [copied.state[p] for p, q in zip(copied.state, optimizer.state) if q is model.up.weight]
    assert torch.equal(entry["momentum_buffer"], momenta(optimizer)["up.weight"])


def test_state_is_of_the_optimizers_parameters_and_only_read(model):
    model.embed.weight.requires_grad_(False)
    optimizer = gluon.Gluon(model.named_parameters())
    assert model.embed.weight not in optimizer.state and torch.ones(1) not in optimizer.state
    with pytest.raises(KeyError):
        optimizer.state[model.embed.weight]
    with pytest.raises(AttributeError, match="Gluon: 'state' cannot be replaced; use load_state_dict()"):
        optimizer.state = {}


def state_of(model, optimizer, flat=False):
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict

    return get_state_dict(model, optimizer, options=StateDictOptions(flatten_optimizer_state_dict=flat))


@needs_state_dict
@pytest.mark.parametrize("make", MAKERS)
def test_get_state_dict_changes_no_bit_of_the_run(make):
    model, optimizer = trained(0, make)
    for step in range(4):
        state_of(model, optimizer)  # torch would fill an empty state by a step with zero gradients
        train(model, optimizer, 1, step)
        optimizer.zero_grad()
        state_of(model, optimizer, flat=True)
    assert optimizer.steps_taken == 4
    assert same_bits(model, trained(4, make)[0])


@needs_state_dict
@pytest.mark.parametrize("flat", [False, True], ids=["nested", "flat"])
@pytest.mark.parametrize("make", [*MAKERS, lambda params: gluon.Gluon(params, momentum="none")])
def test_a_run_resumes_from_get_state_dict_with_the_same_bits(make, flat, tmp_path):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_state_dict

    model, optimizer = trained(3, make)
    optimizer.param_groups[0]["lr"] *= 0.5
    weights, state = state_of(model, optimizer, flat)
    # Without a process group torch warns that it saves alone.
    dcp.save({"model": weights, "optimizer": state}, checkpoint_id=tmp_path)

    other = Net(seed=1)
    resumed = make(other.named_parameters())
    weights, state = state_of(other, resumed, flat)
    loaded = {"model": weights, "optimizer": state}
    dcp.load(loaded, checkpoint_id=tmp_path)
    options = StateDictOptions(flatten_optimizer_state_dict=flat)
    set_state_dict(
        other, resumed, model_state_dict=loaded["model"], optim_state_dict=loaded["optimizer"], options=options
    )
    assert resumed.steps_taken == 3 and resumed.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]
    train(model, optimizer, 2, 3)
    train(other, resumed, 2, 3)
    assert same_bits(model, other)
