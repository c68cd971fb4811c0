"""The interface of torch.optim.Optimizer: groups, schedulers, closures, state, copies."""

import copy
import io
import pickle
import warnings

import pytest
import torch
from conftest import TORCH, Net, close, momenta, needs_cuda, needs_torch, same_bits, train, trained
from torch.optim import lr_scheduler
from torch.optim.swa_utils import SWALR

import gluon


def two_schedulers(optimizer):
    return [lr_scheduler.ConstantLR(optimizer, 0.1, 2), lr_scheduler.ExponentialLR(optimizer, 0.9)]


SCHEDULERS = {
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda k: 0.5**k),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda k: 0.9),
    "StepLR": lambda o: lr_scheduler.StepLR(o, 2, 0.1),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [2, 4]),
    "ConstantLR": lambda o: lr_scheduler.ConstantLR(o, 0.5, 3),
    "LinearLR": lambda o: lr_scheduler.LinearLR(o, 0.5, total_iters=3),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o, 5),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, 5),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.1, 1.0, 2),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 1.0, total_steps=8),
    "ReduceLROnPlateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=0),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(o, two_schedulers(o), [2]),
    "ChainedScheduler": lambda o: lr_scheduler.ChainedScheduler(two_schedulers(o)),
    "SWALR": lambda o: SWALR(o, swa_lr=0.25, anneal_epochs=2, anneal_strategy="linear"),
}


def scheduler_classes():
    bases = {"LRScheduler", "Optimizer"}
    return sorted(
        name
        for name, thing in vars(lr_scheduler).items()
        if isinstance(thing, type) and hasattr(thing, "step") and name not in bases and not name.startswith("_")
    )


@pytest.mark.parametrize("name", [*scheduler_classes(), "SWALR"])
def test_every_scheduler_changes_the_radii(model, name):
    optimizer = gluon.Gluon(model.named_parameters(), radius={"hidden": 0.02})
    scheduler = SCHEDULERS[name](optimizer)
    seen = set()
    for step in range(6):
        lr = optimizer.param_groups[0]["lr"]
        seen.add(lr)
        train(model, optimizer, 1, step)
        assert optimizer.effective_radii()["up.weight"] == pytest.approx(0.02 * lr, rel=1e-6)
        scheduler.step(*([1.0] if name == "ReduceLROnPlateau" else []))
    assert len(seen) > 1


def test_lr_may_be_a_tensor():
    _, optimizer = trained(1, lr=torch.tensor(0.5), radius={"hidden": 0.02})
    assert optimizer.effective_radii()["up.weight"] == pytest.approx(0.01)


def test_changed_momentum_is_used():
    model, optimizer = trained(0, momentum=0.5)
    optimizer.param_groups[0]["momentum"] = 0.9
    train(model, optimizer, 3)
    assert same_bits(model, trained(3, momentum=0.9)[0])


def test_groups_have_their_own_lr_norm_and_decay(model):
    hidden = [(n, p) for n, p in model.named_parameters() if "up" in n]
    rest = [(n, p) for n, p in model.named_parameters() if "up" not in n]
    optimizer = gluon.Gluon(
        [{"params": hidden, "lr": 0.5, "norm": "max_entry", "radius": 0.01}, {"params": rest, "weight_decay": 0.1}]
    )
    train(model, optimizer, 1)
    radii = optimizer.effective_radii()
    assert radii["up.weight"] == pytest.approx(0.005) and radii["up.bias"] == pytest.approx(0.005)
    assert radii["down.weight"] == pytest.approx(0.018)
    assert "weight decay 0.1" in optimizer.routing_report() and "group 0" in optimizer.routing_report()


def test_closure_is_evaluated_with_gradients(model):
    optimizer = gluon.Gluon(model.named_parameters())

    def closure():
        optimizer.zero_grad()
        loss = model.loss()
        loss.backward()
        return loss

    with torch.no_grad():
        first = optimizer.step(closure)
    assert first.item() > optimizer.step(closure).item()


def saved(optimizer):
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    return torch.load(file)


@pytest.mark.parametrize("preset", ["unscion", "scion", "muon", "sgd", "adamw", "deterministic_gluon"])
def test_saved_state_resumes_with_the_same_bits(preset):
    model, optimizer = trained(3, preset=preset, lr=0.5)
    optimizer.param_groups[0]["lr"] = 0.25
    other = Net(1)
    other.load_state_dict(model.state_dict())
    resumed = gluon.Gluon(list(other.named_parameters())[::-1], preset=preset)
    resumed.load_state_dict(saved(optimizer))
    assert resumed.param_groups[0]["lr"] == 0.25 and resumed.steps_taken == 3
    train(model, optimizer, 3, 3)
    train(other, resumed, 3, 3)
    assert same_bits(model, other)


def equal(some, others):
    return all(torch.equal(tensor, others[name]) for name, tensor in some.items())


def test_state_survives_a_change_of_group_order(model):
    named = dict(model.named_parameters())
    a = [(n, p) for n, p in named.items() if "bias" in n]
    b = [(n, p) for n, p in named.items() if "bias" not in n]
    optimizer = gluon.Gluon([{"params": a, "lr": 0.1}, {"params": b, "lr": 0.2}])
    train(model, optimizer, 1)
    other = gluon.Gluon([{"params": b}, {"params": a}])
    other.load_state_dict(optimizer.state_dict())
    assert [group["lr"] for group in other.param_groups] == [0.2, 0.1]
    assert equal(momenta(other), momenta(optimizer))


def test_mismatched_state_is_rejected_and_changes_nothing():
    model, optimizer = trained(2)
    good = optimizer.state_dict("names")
    for change, text in [
        (lambda s: s["state"]["up.weight"].update(momentum=torch.zeros(2, 2)), "up.weight"),
        (lambda s: s["state"]["up.weight"].clear(), "momentum/up.weight"),
        (lambda s: s["state"].update(other={"momentum": torch.zeros(1)}), "belongs to no layer"),
        (lambda s: s["gluon"].update(version=99), "version 99"),
        (lambda s: s.pop("gluon"), "not saved by a Gluon optimizer"),
        (lambda s: s["param_groups"][0]["params"].remove("up.weight"), "'up.weight' is missing"),
        (lambda s: s["param_groups"].append({"params": ["x"]}), "2 groups, the optimizer 1"),
    ]:
        bad = copy.deepcopy(good)
        change(bad)
        with pytest.raises(ValueError, match=text):
            optimizer.load_state_dict(bad)
        assert equal({name: kinds["momentum"] for name, kinds in good["state"].items()}, momenta(optimizer))
    with pytest.raises(ValueError, match="not saved by a Gluon"):
        optimizer.load_state_dict(torch.optim.SGD(model.parameters(), lr=1).state_dict())


@pytest.mark.parametrize("make", [gluon.Gluon, gluon.Muon, gluon.Scion])
@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
def test_copies_train_independently(make, how):
    model, optimizer = trained(2, make)
    if how == "deepcopy":
        other, copied = copy.deepcopy((model, optimizer))
    else:
        other, copied = pickle.loads(pickle.dumps((model, optimizer)))
    assert copied.param_groups[0]["params"][0] is next(other.parameters())
    train(model, optimizer, 2, 2)
    assert not same_bits(model, other)
    train(other, copied, 2, 2)
    assert same_bits(model, other)
    scheduler = lr_scheduler.StepLR(copied, 1)
    train(other, copied, 1)
    scheduler.step()
    assert copied.param_groups[0]["lr"] == pytest.approx(0.1 * optimizer.param_groups[0]["lr"])


def test_frozen_parameters_stay_until_unfrozen(model):
    model.embed.weight.requires_grad_(False)
    optimizer = gluon.Gluon(model.named_parameters())
    start = model.embed.weight.detach().clone()
    train(model, optimizer, 2)
    assert torch.equal(model.embed.weight, start)
    assert "embed.weight" not in optimizer.state_dict("names")["state"]
    momentum = momenta(optimizer)["up.weight"]
    model.embed.weight.requires_grad_(True)
    optimizer.zero_grad()
    model.loss().backward()
    gradient = model.up.weight.grad.clone()
    optimizer.step()
    assert not torch.equal(model.embed.weight, start)
    assert optimizer.steps_taken == 3
    assert torch.allclose(momenta(optimizer)["up.weight"], 0.9 * momentum + 0.1 * gradient, atol=1e-7)

    # A resumed run starts frozen again; the state tells that the parameter was trained.
    other = Net()
    other.load_state_dict(model.state_dict())
    other.embed.weight.requires_grad_(False)
    resumed = gluon.Gluon(other.named_parameters())
    resumed.load_state_dict(optimizer.state_dict())
    other.embed.weight.requires_grad_(True)
    train(model, optimizer, 2)
    train(other, resumed, 2)
    assert same_bits(model, other)


def test_rule_of_a_frozen_parameter_applies_when_it_is_unfrozen(model):
    model.embed.weight.requires_grad_(False)
    rule = {"pattern": "embed.*", "norm": "max_entry", "radius": 0.5}
    optimizer = gluon.Gluon(model.named_parameters(), preset="unscion", geometry=[rule])
    train(model, optimizer, 1)
    model.embed.weight.requires_grad_(True)
    train(model, optimizer, 1)
    assert optimizer.effective_radii()["embed.weight"] == pytest.approx(0.5)


def test_parameters_frozen_later_are_skipped_with_one_warning():
    model, optimizer = trained(1)
    model.up.weight.requires_grad_(False)
    start = model.up.weight.detach().clone()
    optimizer.zero_grad(set_to_none=True)
    model.loss().backward()
    with pytest.warns(UserWarning, match="'up.weight' has no gradient"):
        optimizer.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.step()
    assert torch.equal(model.up.weight, start)


def test_added_groups_start_with_fresh_state(model):
    named = list(model.named_parameters())
    optimizer = gluon.Gluon(named[:3])
    train(model, optimizer, 1)
    before = momenta(optimizer)
    optimizer.add_param_group({"params": named[3:], "lr": 0.5})
    after = momenta(optimizer)
    assert equal(before, after) and not after["down.weight"].any()
    train(model, optimizer, 1)
    assert optimizer.effective_radii()["down.weight"] == pytest.approx(0.009)
    with pytest.raises(ValueError):
        optimizer.add_param_group({"params": [("again", named[0][1])]})
    with pytest.raises(ValueError, match="two layers are called 'up.weight'"):
        optimizer.add_param_group({"params": [("up.weight", torch.nn.Parameter(torch.ones(2, 2)))]})
    assert len(optimizer.param_groups) == 2
    train(model, optimizer, 1)


def grad_scaler(device, **options):
    return torch.amp.GradScaler(device, **options) if TORCH >= (2, 3) else torch.cuda.amp.GradScaler(**options)


def test_disabled_grad_scaler_steps(model):
    optimizer = gluon.Gluon(model.named_parameters())
    scaler = grad_scaler("cpu", enabled=False)
    start = model.up.weight.detach().clone()
    scaler.scale(model.loss()).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert not torch.equal(model.up.weight, start)


DEVICES = [pytest.param("cpu", marks=needs_torch(2, 3)), pytest.param("cuda", marks=needs_cuda)]


@pytest.mark.parametrize("device", DEVICES)
def test_grad_scaler_scales_and_skips(model, device):
    model.to(device)
    optimizer = gluon.Gluon(model.named_parameters())
    scaler = grad_scaler(device, init_scale=4.0)
    plain = Net().to(device)
    train(plain, gluon.Gluon(plain.named_parameters()), 1)
    scaler.scale(model.loss()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert close(model, plain, atol=1e-6)
    model.up.weight.grad.fill_(float("inf"))
    scaler.step(optimizer)
    scaler.update()
    assert optimizer.steps_taken == 1 and scaler.get_scale() == 2.0


@needs_torch(2, 3)
def test_hooks_run_around_steps_and_state_dicts(model):
    optimizer = gluon.Gluon(model.named_parameters())
    seen = []
    optimizer.register_step_pre_hook(lambda o, args, kwargs: seen.append("before"))
    optimizer.register_step_post_hook(lambda o, args, kwargs: seen.append("after"))
    optimizer.register_state_dict_pre_hook(lambda o: seen.append("saving"))
    optimizer.register_state_dict_post_hook(lambda o, state: {**state, "note": 1})
    optimizer.register_load_state_dict_pre_hook(lambda o, state: seen.append(state["note"]))
    optimizer.register_load_state_dict_post_hook(lambda o: seen.append("loaded"))
    train(model, optimizer, 1)
    optimizer.load_state_dict(optimizer.state_dict())
    assert seen == ["before", "after", "saving", 1, "loaded"]
