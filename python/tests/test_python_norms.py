"""Norms written in Python: objects with a name and three functions."""

import copy
import pickle

import pytest
import torch
from conftest import Net, same_bits, train

import gluon


class MaxEntry:
    """The library's "max_entry", again."""

    name = "my_max"

    def norm(self, x):
        return x.abs().amax(dim=(1, 2))

    def dual_norm(self, g):
        return g.abs().sum(dim=(1, 2))

    def lmo(self, g):
        return -g.sign()


class Changed(MaxEntry):
    def __init__(self, **functions):
        self.__dict__.update(functions)


def trained_with(norm, steps=3, **rule):
    model = Net()
    optimizer = gluon.Gluon(model.named_parameters(), geometry=[{"norm": norm, "radius": 0.01, **rule}])
    train(model, optimizer, steps)
    return model, optimizer


def test_a_norm_of_python_steps_like_the_librarys():
    model, optimizer = trained_with(MaxEntry())
    assert same_bits(model, trained_with("max_entry")[0])
    assert "my_max" in optimizer.routing_report() and "my_max" in repr(optimizer.geometry)
    assert isinstance(optimizer.geometry.rules[0]["norm"], MaxEntry)


def test_a_group_may_have_a_norm_of_python():
    norm, model = MaxEntry(), Net()
    optimizer = gluon.Gluon([{"params": list(model.named_parameters()), "norm": norm, "radius": 0.01}])
    train(model, optimizer, 3)
    assert same_bits(model, trained_with("max_entry")[0])
    assert optimizer.state_dict()["param_groups"][0]["norm"] == "my_max"
    optimizer.param_groups[0]["norm"] = Changed(lmo=lambda g: g.sign())
    with pytest.raises(ValueError, match="norm of layer '.*.weight': my_max"):
        optimizer.step()


@pytest.mark.parametrize("how", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))])
def test_copies_have_the_norm_too(how):
    model, optimizer = trained_with(MaxEntry())
    other, copied = how((model, optimizer))
    train(model, optimizer, 2, 3)
    train(other, copied, 2, 3)
    assert same_bits(model, other)


def test_smoothness_is_measured_in_a_norm_of_python():
    def rows(norm):
        model = Net()
        optimizer = gluon.Gluon(model.named_parameters(), geometry=[{"norm": norm, "radius": 0.01}])
        recorder = gluon.SmoothnessRecorder(optimizer, every=1)
        train(model, optimizer, 3)
        return [row["smoothness"] for row in recorder.rows()]

    assert rows(MaxEntry()) == rows("max_entry") != []


@pytest.mark.parametrize(
    "change, text",
    [
        (dict(lmo=lambda g: g.sign()), "norm of layer 'w': .*my_max"),
        (dict(lmo=lambda g: -2 * g.sign()), "norm of layer 'w': .*my_max"),
        (dict(dual_norm=lambda g: g.norm(dim=(1, 2))), "norm of layer 'w': .*my_max"),
        (dict(norm=lambda x: x.sum(0)), r"norm 'my_max': norm\(\) of \[3, 4, 2\] must be \[3\], got \[4, 2\]"),
        (dict(lmo=lambda g: None), r"norm 'my_max': lmo\(\) must return a tensor"),
        (dict(lmo=lambda g: g.missing), r"norm 'my_max': lmo\(\) raised AttributeError: .*missing"),
        (dict(lmo=3), r"Changed has no lmo\(\)"),
        (dict(name=""), "Changed has no 'name'"),
        (dict(name="adamw"), "'adamw' is no norm; an object needs another name"),
    ],
)
def test_a_bad_norm_is_refused_before_it_moves_anything(change, text):
    norm = Changed(**change)
    parameter = torch.nn.Parameter(torch.ones(4, 2))
    with pytest.raises(ValueError, match=text):
        gluon.Gluon([("w", parameter)], geometry=[{"norm": norm}])
    with pytest.raises(ValueError, match=text.replace("layer 'w'", "layer 'x'")):
        gluon.norms.check(norm, 4, 2)


def test_a_thing_that_is_no_norm_is_named():
    with pytest.raises(ValueError, match="norm: expected a name, or an object with a 'name' and the functions"):
        gluon.Geometry([{"norm": 5}])


def test_a_norm_may_tell_how_exact_it_is(model):
    inexact = dict(lmo=lambda g: -0.97 * g.sign())
    with pytest.raises(ValueError, match="my_max"):
        gluon.norms.check(Changed(**inexact), 4, 2)
    gluon.norms.check(Changed(**inexact, tolerance=0.1), 4, 2)


def test_the_check_draws_no_random_numbers_of_the_run():
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    trained = gluon.Gluon([("w", torch.nn.Parameter(torch.ones(4, 2)))], geometry=[{"norm": MaxEntry()}])
    assert trained and torch.equal(torch.rand(1), expected)


def test_an_error_in_a_step_names_the_norm_and_the_layer():
    norm = Changed()
    parameter = torch.nn.Parameter(torch.ones(4, 2))
    optimizer = gluon.Gluon([("w", parameter)], geometry=[{"norm": norm}])

    def fail(g):
        raise RuntimeError("no more")

    norm.lmo = fail
    parameter.grad = torch.ones(4, 2)
    with pytest.raises(Exception, match=r"my_max[\s\S]*'w'[\s\S]*|'w'[\s\S]*my_max"):
        optimizer.step()
