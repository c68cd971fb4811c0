"""The warning about clipped gradients, whose length an LMO ignores."""

import copy
import warnings

import pytest
import torch
from conftest import Net

import gluon

LENGTH = "total length"


def train(optimizer, net, steps, clip=None, seed=3):
    """The messages of the warnings in these steps; random gradients are long enough to be clipped."""
    generator = torch.Generator().manual_seed(seed)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(steps):
            for parameter in net.parameters():
                parameter.grad = 10 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            if clip is not None:
                torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
            optimizer.step()
    return [str(one.message) for one in caught if LENGTH in str(one.message)]


@pytest.mark.parametrize("clip", [1.0, 0.5, 0.01, 12.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_clipping_is_said_once(clip, dtype):
    net = Net().to(dtype)
    optimizer = gluon.Gluon(net.named_parameters(), preset="unscion")
    said = train(optimizer, net, 12, clip)
    assert len(said) == 1
    assert f"in 3 steps the gradients had the total length {clip:g}, as clip_grad_norm_() leaves them" in said[0]


@pytest.mark.parametrize("preset", ["muon", "scion", "sphere"])
def test_presets_with_other_layers_say_it_too(preset):
    net = Net()
    steps = 12 if preset == "sphere" else None
    assert len(train(gluon.Gluon(net.named_parameters(), preset=preset, steps=steps), net, 12, 1.0)) == 1


def test_nothing_is_said_of_gradients_as_they_are():
    for seed in range(5):
        net = Net()
        assert train(gluon.Gluon(net.named_parameters(), preset="muon"), net, 12, seed=seed) == []


READS_THE_LENGTH = [{"norm": "euclidean", "radius": "smooth(0,70)"}]


@pytest.mark.parametrize("options", [{"preset": "adamw"}, {"preset": "sgd"}, {"geometry": READS_THE_LENGTH}])
def test_nothing_is_said_where_the_length_counts(options):
    net = Net()
    assert train(gluon.Gluon(net.named_parameters(), **options), net, 12, 1.0) == []


def test_late_clipping_and_copies_are_left_alone():
    net = Net()
    optimizer = gluon.Gluon(net.named_parameters(), preset="muon")
    assert train(optimizer, net, 8) == []
    assert train(optimizer, net, 6, 1.0) == []
    assert train(copy.deepcopy(optimizer), net, 6, 1.0) == []


def test_steps_without_gradients_count_as_no_length():
    net = Net()
    optimizer = gluon.Gluon(net.named_parameters(), preset="muon")
    with warnings.catch_warnings(record=True) as caught:
        for _ in range(4):
            optimizer.step()
    assert not [one for one in caught if LENGTH in str(one.message)]
