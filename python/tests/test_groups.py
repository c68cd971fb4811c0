"""Every key of a group is live, or its change raises."""

import copy
import warnings

import pytest
import torch
from conftest import Net, momenta, same_bits, train, trained
from torch.optim import lr_scheduler

import gluon


def edited(key, value, make=gluon.Gluon, **options):
    """Trains, edits the only group, trains on."""
    model, optimizer = trained(2, make, **options)
    optimizer.param_groups[0][key] = value
    train(model, optimizer, 2, 2)
    return model, optimizer


def from_start(key, value, make=gluon.Gluon, **options):
    """The same run by an optimizer that is made with the new value and the old momentum after two steps."""
    model, optimizer = trained(2, make, **options)
    new = make([{"params": list(model.named_parameters()), key: value}], **options)
    state = optimizer.state_dict()
    state["param_groups"] = new.state_dict()["param_groups"]
    new.load_state_dict(state)
    train(model, new, 2, 2)
    return model


@pytest.mark.parametrize(
    "key, value",
    [("weight_decay", 0.5), ("radius", 0.3), ("norm", "max_entry"), ("ball", 3.0), ("radius", "power(0.1)")],
)
def test_a_changed_rule_takes_effect_at_the_next_step(key, value):
    model, optimizer = edited(key, value)
    assert same_bits(model, from_start(key, value))
    assert not same_bits(model, trained(4)[0])
    assert optimizer.geometry.rules[0][key] == value
    assert optimizer.steps_taken == 4


def test_a_removed_key_leaves_its_layers_to_the_rules():
    model = Net()
    optimizer = gluon.Gluon([{"params": list(model.named_parameters()), "radius": 0.3}])
    del optimizer.param_groups[0]["radius"]
    train(model, optimizer, 2)
    assert same_bits(model, trained(2)[0])


def test_reports_and_copies_show_a_change_before_the_next_step():
    model, optimizer = trained(1)
    optimizer.param_groups[0]["radius"] = 0.25
    assert "group 0" in optimizer.routing_report() and "0.25" in optimizer.routing_report()
    other, copied = copy.deepcopy((model, optimizer))
    train(model, optimizer, 1)
    train(other, copied, 1)
    assert same_bits(model, other) and optimizer.effective_radii() == copied.effective_radii()


def test_a_changed_role_and_split_take_effect(model):
    optimizer = gluon.Gluon([("w", model.up.weight)])
    optimizer.param_groups[0]["split"] = "rows:3"
    model.up.weight.grad = torch.ones_like(model.up.weight)
    optimizer.step()
    assert list(optimizer.effective_radii()) == ["w[0]", "w[1]", "w[2]"]
    optimizer.param_groups[0].update(role="head", split=None)
    optimizer.step()
    assert optimizer.routing_report().splitlines()[1].startswith("head") and list(optimizer.effective_radii()) == ["w"]


def test_a_bad_change_raises_and_moves_nothing():
    model, optimizer = trained(1)
    start = [p.detach().clone() for p in model.parameters()]
    group = optimizer.param_groups[0]
    for key, value, text in [
        ("weight_decay", -1, "weight decay must be >= 0 and finite, got -1"),
        ("radius", 0, "radius: must be > 0 and finite, got 0"),
        ("radius", "fast", "fast"),
        ("norm", "nuclear", "unknown name 'nuclear'"),
        ("role", "body", "role: unknown name 'body'"),
        ("split", "rows:5", "cannot be cut into 5 equal parts"),
        ("weight_dcay", 0.1, "group 0 has the unknown key 'weight_dcay'; allowed are params, param_names, lr"),
        ("betas", (0.9, 0.99), "unknown key 'betas'"),
        ("lr", -1.0, "radius multiplier must be >= 0"),
        ("momentum", 2.0, "beta must be in"),
        ("momentum", "nesterov(0.9)", "'momentum' of group 0 must be a number, got 'nesterov\\(0.9\\)'"),
        ("lr", None, "'lr' of group 0 must be a number, got None"),
    ]:
        kept = dict(group)
        group[key] = value
        with pytest.raises(ValueError, match=text):
            optimizer.step()
        group.clear()
        group.update(kept)
    assert all(torch.equal(p, x) for p, x in zip(model.parameters(), start)) and optimizer.steps_taken == 1
    train(model, optimizer, 1)


@pytest.mark.parametrize("key", ["weight_dcay", "wd", "pattern", "betas"])
def test_unknown_keys_are_rejected(model, key):
    group = {"params": list(model.named_parameters()), key: 0.1}
    with pytest.raises(ValueError, match=f"group 0 has the unknown key '{key}'"):
        gluon.Gluon([group])
    optimizer = gluon.Gluon([("w", torch.nn.Parameter(torch.ones(2, 2)))])
    with pytest.raises(ValueError, match=f"group 1 has the unknown key '{key}'"):
        optimizer.add_param_group(group)
    assert len(optimizer.param_groups) == 1


@pytest.mark.parametrize("make", [gluon.Gluon, gluon.Muon, gluon.Scion])
def test_a_group_without_parameters_is_rejected(model, make):
    with pytest.raises(ValueError, match="parameters: a group has no 'params', only lr"):
        make([{"lr": 1.0}])
    optimizer = make(model.named_parameters())
    with pytest.raises(ValueError, match="parameters: a group has no 'params'"):
        optimizer.add_param_group({"lr": 1.0})


def test_notes_of_other_tools_are_kept(model):
    notes = {"name": "all", "lr_scale": 0.5, "_mine": 3}
    optimizer = gluon.Gluon([{"params": list(model.named_parameters()), **notes}])
    lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=8)
    train(model, optimizer, 1)
    assert {key: optimizer.param_groups[0][key] for key in notes} == notes


def test_replaced_parameters_move_and_keep_their_momentum():
    model, optimizer = trained(2)
    other = copy.deepcopy(model)
    optimizer.param_groups[0]["params"] = list(other.parameters())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(other, optimizer, 2, 2)
    expected = trained(4)[0]
    assert same_bits(other, expected) and optimizer.steps_taken == 4
    optimizer.param_groups[0]["params"][0] = torch.nn.Parameter(torch.ones(3, 6))
    with pytest.raises(ValueError, match=r"'embed.weight' of group 0 has the shape \[11, 6\].*replaced by \[3, 6\]"):
        optimizer.step()


def test_flat_partitions_of_deepspeed_are_refused_by_name(model):
    """What its ZeRO does to a group (stages 1 and 2) and to a model's parameters (stage 3)."""
    optimizer = gluon.Gluon(model.named_parameters())
    flat = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    optimizer.param_groups[0]["params"] = [flat]
    with pytest.raises(ValueError, match="group 0 has one flat tensor in the place of 8 parameters, as DeepSpeed's ZeRO"):
        optimizer.step()
    model.up.weight.ds_id = 0
    with pytest.raises(ValueError, match="'up.weight' belongs to DeepSpeed's ZeRO stage 3"):
        gluon.Gluon(model)


def test_parameters_and_names_change_together_or_not_at_all(model):
    optimizer = gluon.Gluon(model.named_parameters())
    optimizer.param_groups[0]["params"].append(torch.nn.Parameter(torch.ones(2, 2)))
    with pytest.raises(ValueError, match="group 0 has 9 parameters for 8 names"):
        optimizer.step()
    optimizer.param_groups[0]["params"].pop()
    optimizer.param_groups[0]["param_names"][0] = "tokens"
    with pytest.raises(ValueError, match="'param_names' of group 0 changed"):
        optimizer.step()
    optimizer.param_groups[0]["param_names"][0] = "embed.weight"
    optimizer.param_groups.append({"params": [], "lr": 1.0})
    with pytest.raises(ValueError, match=r"group 1 has no 'param_names'; add groups with add_param_group\(\)"):
        optimizer.step()
    del optimizer.param_groups[0]["lr"]
    with pytest.raises(ValueError, match="group 0 has no 'lr'"):
        optimizer.step()


def test_a_changed_name_is_noticed_beside_replaced_parameters(model):
    named = list(model.named_parameters())
    optimizer = gluon.Gluon([{"params": named[:2]}, {"params": named[2:]}])
    optimizer.param_groups[0]["params"][0] = torch.nn.Parameter(torch.ones(11, 6))
    optimizer.param_groups[1]["param_names"][0] = "bias"
    with pytest.raises(ValueError, match="'param_names' of group 1 changed"):
        optimizer.step()


def test_a_group_may_be_removed(model):
    named = list(model.named_parameters())
    optimizer = gluon.Gluon([{"params": named[:2]}, {"params": named[2:]}])
    train(model, optimizer, 1)
    before, kept = momenta(optimizer), named[2][1].detach().clone()
    optimizer.param_groups.pop()
    train(model, optimizer, 1)
    assert list(momenta(optimizer)) == ["embed.weight", "up.weight"] and torch.equal(named[2][1], kept)
    assert not torch.equal(momenta(optimizer)["up.weight"], before["up.weight"])


def test_parameters_cannot_be_replaced_under_a_recorder(model):
    optimizer = gluon.Gluon(model.named_parameters())
    recorder = gluon.SmoothnessRecorder(optimizer, every=2)
    train(model, optimizer, 1)
    optimizer.param_groups[0]["radius"] = 0.1
    train(model, optimizer, 3, 1)
    assert {round(row["radius"], 6) for row in recorder.rows() if row["step"] == 3} == {0.1}
    optimizer.param_groups[0]["params"] = [torch.nn.Parameter(p.detach().clone()) for p in model.parameters()]
    with pytest.raises(ValueError, match="a SmoothnessRecorder measures the parameters that were replaced"):
        optimizer.step()


def test_skipped_steps_are_counted_across_a_change():
    model, optimizer = trained(1, non_finite="skip")
    model.up.weight.grad[0, 0] = float("nan")
    optimizer.step()
    optimizer.param_groups[0]["radius"] = 0.1
    train(model, optimizer, 1)
    assert optimizer.steps_skipped == 1 and optimizer.steps_taken == 2


def test_momentum_of_none_is_the_optimizers(model):
    optimizer = gluon.Gluon(model.named_parameters(), momentum=0.5)
    optimizer.param_groups[0]["momentum"] = 0.9
    train(model, optimizer, 2)
    optimizer.param_groups[0]["momentum"] = None
    other = Net()
    other.load_state_dict(model.state_dict())
    fresh = gluon.Gluon(other.named_parameters(), momentum=0.5)
    state = optimizer.state_dict()
    state["param_groups"][0]["momentum"] = 0.5
    fresh.load_state_dict(state)
    train(model, optimizer, 2, 2)
    train(other, fresh, 2, 2)
    assert same_bits(model, other)


def test_muon_has_its_weight_decay_in_its_groups():
    model, optimizer = trained(2, gluon.Muon, weight_decay=0.1)
    assert optimizer.param_groups[0]["weight_decay"] == optimizer.defaults["weight_decay"] == 0.1
    assert gluon.Muon(Net().named_parameters()).param_groups[0]["weight_decay"] == 0
    assert "group 0" not in optimizer.routing_report()
    # The constructor's decay is that of matrices, and so is a group's that has it from there.
    optimizer.param_groups[0]["weight_decay"] = 0.25
    train(model, optimizer, 2, 2)
    other = trained(2, gluon.Muon, weight_decay=0.1)
    successor = gluon.Muon(other[0].named_parameters(), weight_decay=0.25)
    state = other[1].state_dict()
    state["param_groups"][0]["weight_decay"] = 0.25
    successor.load_state_dict(state)
    train(other[0], successor, 2, 2)
    assert same_bits(model, other[0])
    report = optimizer.routing_report()
    assert report.count("weight decay 0.25") == 3 and "weight decay 0.1" not in report


def test_a_group_of_muon_with_its_own_weight_decay_decays_all_its_layers(model):
    optimizer = gluon.Muon([{"params": list(model.named_parameters()), "weight_decay": 0.2}], weight_decay=0.1)
    assert optimizer.routing_report().count("weight decay 0.2") == 4
    copied = copy.deepcopy(optimizer)
    copied.param_groups[0]["weight_decay"] = 0.3
    assert copied.routing_report().count("weight decay 0.3") == 4
    optimizer.add_param_group({"params": [("late", torch.nn.Parameter(torch.ones(2, 2)))]})
    assert optimizer.param_groups[1]["weight_decay"] == 0.1
    assert "weight decay 0.1" in optimizer.routing_report()


def test_groups_with_use_muon_may_be_added(model):
    hidden, rest = [("up", model.up.weight)], [("bias", model.up.bias)]
    optimizer = gluon.Muon([{"params": hidden, "use_muon": True}])
    optimizer.add_param_group({"params": rest, "use_muon": False, "betas": (0.9, 0.95)})
    assert ["group", "1", "adamw"] in [line.split()[:3] for line in optimizer.routing_report().splitlines()]
    assert optimizer.param_groups[1]["lr"] == 3e-4
    late = [("late", torch.nn.Parameter(torch.ones(2)))]
    with pytest.raises(ValueError, match=r"the added group's betas are \(0.5, 0.6\), the optimizer's \(0.9, 0.95\)"):
        optimizer.add_param_group({"params": late, "use_muon": False, "betas": (0.5, 0.6)})


def test_changed_values_are_saved_and_loaded():
    model, optimizer = trained(2)
    optimizer.param_groups[0].update(weight_decay=0.5, radius=0.1)
    train(model, optimizer, 2, 2)
    other = Net()
    other.load_state_dict(model.state_dict())
    resumed = gluon.Gluon(other.named_parameters())
    resumed.load_state_dict(optimizer.state_dict())
    train(model, optimizer, 2, 4)
    train(other, resumed, 2, 4)
    assert same_bits(model, other)


@pytest.mark.parametrize("schedule", ["OneCycleLR", "CyclicLR"])
def test_momentum_of_scion_is_not_cycled_the_wrong_way(model, schedule):
    optimizer = gluon.Scion(model.named_parameters(), lr=1e-3)
    options = {"OneCycleLR": (1e-3, 8), "CyclicLR": (1e-4, 1e-3)}[schedule]
    with pytest.raises(ValueError, match="must support momentum"):
        getattr(lr_scheduler, schedule)(optimizer, *options)
    scheduler = getattr(lr_scheduler, schedule)(optimizer, *options, cycle_momentum=False)
    train(model, optimizer, 1)
    scheduler.step()
    assert optimizer.param_groups[0]["momentum"] == 0.1
    copied = copy.deepcopy(optimizer)
    copied.add_param_group({"params": [("late", torch.nn.Parameter(torch.ones(2, 2)))]})
    assert copied.param_groups[1]["momentum"] == 0.1


def test_momentum_of_scion_is_checked_as_it_was_set(model):
    optimizer = gluon.Scion(model.named_parameters())
    for momentum in (0.0, 1.5):
        optimizer.param_groups[0]["momentum"] = momentum
        with pytest.raises(ValueError, match=rf"Scion: momentum, one minus .*, must be in \(0, 1\], got {momentum}"):
            optimizer.step()


@pytest.mark.parametrize("lr", [1e-3, 0.02, torch.tensor(3e-4)])
def test_a_learning_rate_from_habit_gives_a_hint(model, lr):
    with pytest.warns(UserWarning, match="multiplies the preset's radii"):
        gluon.Gluon(model.named_parameters(), lr=lr)
    with pytest.warns(UserWarning, match="multiplies the preset's radii"):
        gluon.Gluon([{"params": list(model.named_parameters()), "lr": lr}])


def test_a_small_lr_beside_radii_gives_no_hint(model, recwarn):
    named = list(model.named_parameters())
    gluon.Gluon(named, lr=1e-3, radius={"hidden": 20})
    gluon.Gluon(named, lr=1e-3, geometry=[{"radius": 1.0}])
    gluon.Gluon([{"params": named, "lr": 1e-3, "radius": 1.0}])
    gluon.Gluon(named, lr=0.5)
    gluon.Muon(named, lr=1e-3)
    gluon.Scion(named, lr=1e-4)
    assert not recwarn.list


@pytest.mark.parametrize(
    "make, argument, text",
    [
        (gluon.Gluon, "weight_decay", "Gluon: unknown argument 'weight_decay'; set it in a group"),
        (gluon.Gluon, "betas", "Gluon: unknown argument 'betas'; use momentum= for norms and adamw_betas="),
        (gluon.Gluon, "nesterov", r"use momentum='nesterov\(0.95\)'"),
        (gluon.Gluon, "fused", r"unknown argument 'fused'; leave it out; the step is one call into C\+\+"),
        (gluon.Muon, "betas", "Muon: unknown argument 'betas'; use momentum="),
        (gluon.Muon, "ns_coefficients", "Muon: unknown argument 'ns_coefficients'; use orthogonalizer="),
        (gluon.Muon, "wd", "Muon: unknown argument 'wd'; allowed are params, lr, weight_decay, momentum, nesterov"),
        (gluon.Scion, "weight_decay", "Scion: unknown argument 'weight_decay'; set it in a group"),
        (gluon.Scion, "beta", "allowed are params, lr, momentum, norm, norm_kwargs, scale, unconstrained, "),
    ],
)
def test_unknown_arguments_are_named(model, make, argument, text):
    with pytest.raises(TypeError, match=text):
        make(model.named_parameters(), **{argument: 1})


def test_a_changed_group_keeps_momentum_bits():
    model, optimizer = trained(3)
    before = momenta(optimizer)
    optimizer.param_groups[0]["radius"] = 0.1
    after = momenta(optimizer)
    assert all(torch.equal(before[name], after[name]) for name in before)
