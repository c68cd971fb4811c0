"""Samples as scalars for TensorBoard, W&B and the like; what clipping the gradient changes."""

import math
import re
import sys
import types
from pathlib import Path

import pytest
import torch
from conftest import Net, close, same_bits, train, trained

import gluon

GUIDE = (Path(__file__).parents[2] / "docs" / "python.md").read_text()


class Writer:
    def __init__(self, folder=None):
        self.scalars = []

    def add_scalar(self, name, value, step):
        self.scalars.append((name, value, step))


def recorded(steps, make=gluon.Gluon, **options):
    model, optimizer = trained(0, make)
    recorder = gluon.SmoothnessRecorder(optimizer, **options)
    train(model, optimizer, steps)
    return model, optimizer, recorder


def test_every_sample_is_logged_once():
    model, optimizer, recorder = recorded(4, every=2)
    writer = Writer()
    assert recorder.log(writer) == len(writer.scalars) > 0
    assert recorder.log(writer) == 0
    train(model, optimizer, 4, 4)
    recorder.rows()  # must not take samples away
    recorder.log(writer)
    expected = [
        (f"{column}/{row['layer']}", row[column], row["step"])
        for row in recorder.rows()
        for column in ("smoothness", "gradient", "alignment", "radius")
    ]
    assert sorted(writer.scalars) == sorted(expected)
    assert [step for *_, step in writer.scalars] == sorted(step for *_, step in expected)
    assert same_bits(model, trained(8)[0])


def test_a_function_is_a_log_and_missing_values_are_left_out():
    *_, recorder = recorded(3, gluon.Muon, every=1)
    seen = []
    recorder.log(lambda name, value, step: seen.append((name, value)))
    assert not any(math.isnan(value) for _, value in seen)
    names = {name for name, _ in seen}
    assert "radius/up.weight" in names and "radius/embed.weight" not in names and "smoothness/embed.weight" in names


def test_a_thing_that_cannot_log_is_named():
    *_, recorder = recorded(2, every=1)
    with pytest.raises(TypeError, match=r"log\(\) needs an object with add_scalar\(\).*got str"):
        recorder.log("runs")


def test_the_guides_lines_run(monkeypatch):
    writers, logged = [], []

    class Summary(Writer):
        def __init__(self, folder):
            super().__init__()
            writers.append(self)

    run = types.SimpleNamespace(log=lambda values, step: logged.append((values, step)))
    board, wandb = types.ModuleType("torch.utils.tensorboard"), types.ModuleType("wandb")
    board.SummaryWriter, wandb.init = Summary, lambda project: run
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", board)
    blocks = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE)
    tensorboards, wandbs = (code for code in blocks if "recorder.log" in code)
    for code in (tensorboards, wandbs):
        model, optimizer = trained(0)
        names = {"gluon": gluon, "optimizer": optimizer, "torch": torch, "wandb": wandb, "loader": range(52)}
        names["train_step"] = lambda step: train(model, optimizer, 1, step)
        if code is wandbs:
            code, last = code.strip().rsplit("\n", 1)
            exec(code, names)
            for step in range(52):
                names["train_step"](step)
                exec(last, names)
        else:
            exec(code, names)
    assert {step for *_, step in writers[0].scalars} == {1, 51} == {step for _, step in logged}


def clipped(preset, most, **options):
    model = Net()
    optimizer = gluon.Gluon(model.named_parameters(), preset=preset, **options)
    for step in range(3):
        optimizer.zero_grad()
        model.loss(step).backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), most)
        assert norm > 0.1
        optimizer.step()
    return model


def test_clipping_does_nothing_to_an_lmo_without_momentum():
    for preset in ("unscion", "sign_descent", "normalized_descent"):
        assert close(clipped(preset, 0.01, momentum="none"), clipped(preset, 1e9, momentum="none"), atol=1e-5)
    # It counts where the gradient's length does.
    smooth = dict(preset=None, geometry=[{"norm": "max_entry", "radius": "smooth(1,0)"}], momentum="none")
    assert not close(clipped(most=0.01, **smooth), clipped(most=1e9, **smooth), atol=1e-5)
