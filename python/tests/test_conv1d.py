"""Layers of the class Conv1D, as GPT-2's in transformers, store their weight as (in, out): rules read them as
torch.nn.Linear's, where the optimizer sees the module."""

import copy
import warnings

import pytest
import torch

import gluon

IN, OUT = 4, 12


class Conv1D(torch.nn.Module):
    """What transformers.pytorch_utils has."""

    def __init__(self, nf, nx):
        super().__init__()
        self.nf = nf
        self.weight = torch.nn.Parameter(torch.randn(nx, nf))
        self.bias = torch.nn.Parameter(torch.zeros(nf))

    def forward(self, x):
        return x @ self.weight + self.bias


class Block(torch.nn.Module):
    def __init__(self, conv1d):
        super().__init__()
        self.c_attn = Conv1D(OUT, IN) if conv1d else torch.nn.Linear(IN, OUT)
        self.c_proj = Conv1D(IN, OUT) if conv1d else torch.nn.Linear(OUT, IN)
        self.plain = torch.nn.Linear(IN, IN)

    def forward(self, x):
        return self.plain(self.c_proj(torch.tanh(self.c_attn(x))))


def pair(blocks=2):
    """Two models that compute the same, the first by Conv1D."""
    torch.manual_seed(0)
    linear = torch.nn.Sequential(*(Block(False) for _ in range(blocks)))
    conv1d = torch.nn.Sequential(*(Block(True) for _ in range(blocks)))
    with torch.no_grad():
        for ours, theirs in zip(conv1d.parameters(), linear.parameters()):
            ours.copy_(theirs.T if ours.shape != theirs.shape else theirs)
    return conv1d, linear


def train(model, optimizer, steps=3):
    for step in range(steps):
        optimizer.zero_grad()
        x = torch.randn(16, IN, generator=torch.Generator().manual_seed(step))
        (model(x) - x.flip(1)).square().mean().backward()
        optimizer.step()


def distance(conv1d, linear):
    """Of the weights, relative to the largest."""
    pairs = list(zip(conv1d.parameters(), linear.parameters()))
    return max(((a.T if a.shape != b.shape else a) - b).abs().max() / b.abs().max() for a, b in pairs)


RULES = [
    {"role": "hidden", "norm": "scaled(1/sqrt(n),rows)", "radius": 0.1},
    {"norm": "scaled(1/sqrt(m),euclidean)", "radius": 0.1},
]
OPTIMIZERS = {
    "muon": lambda model: gluon.Muon(model, lr=0.05, weight_decay=0.1),
    "unscion": lambda model: gluon.Gluon(model),
    "sphere": lambda model: gluon.Gluon(model, radius="auto", steps=10),
    "scion": lambda model: gluon.Scion(model, lr=0.01),
    "rows": lambda model: gluon.Gluon(model, geometry=RULES),
}


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_a_run_is_that_of_linear_layers(make):
    conv1d, linear = pair()
    train(conv1d, make(conv1d))
    train(linear, make(linear))
    assert distance(conv1d, linear) < 1e-4


@pytest.mark.parametrize("split", ["qkv", "rows:3", "rows:6,2,4"])
def test_a_split_cuts_outputs(split):
    conv1d, linear = pair(1)
    for model in (conv1d, linear):
        fused = {"pattern": "*c_attn.weight", "norm": "spectral(svd)", "radius": 0.1, "split": split}
        optimizer = gluon.Gluon(model, geometry=[fused, {"norm": "euclidean"}])
        train(model, optimizer)
        assert "0.c_attn.weight[2]" in optimizer.effective_radii()
    assert distance(conv1d, linear) < 1e-4


def test_the_report_has_a_line_for_each_kind_of_layer():
    conv1d, _ = pair(3)
    report = gluon.Gluon(conv1d).routing_report().splitlines()
    rows = [line.split()[:4] for line in report[1:]]
    turned, usual = "scaled(sqrt(m/n),spectral)", "scaled(sqrt(n/m),spectral)"
    assert [row[:2] + row[3:] for row in rows[:3]] == [
        ["*.c_attn.weight", turned, "3"], ["*.c_proj.weight", turned, "3"], ["hidden", usual, "3"],
    ]  # fmt: skip


def test_a_pattern_takes_no_other_layers():
    """Blocks whose number alone tells Conv1D from Linear."""
    torch.manual_seed(0)
    model = torch.nn.ModuleDict({"h1": Conv1D(OUT, IN), "h2": torch.nn.Linear(OUT, OUT), "h10": Conv1D(OUT, IN)})
    report = gluon.Gluon(model).routing_report()
    assert [line.split()[0] for line in report.splitlines()[1:4]] == ["h1.weight", "h10.weight", "hidden"]


def test_a_scale_that_is_the_same_both_ways_changes_nothing():
    conv1d, _ = pair()
    optimizer = gluon.Muon(conv1d, adjust_lr_fn="match_rms_adamw")
    named = gluon.Muon(conv1d.named_parameters(), adjust_lr_fn="match_rms_adamw")
    assert optimizer.routing_report() == named.routing_report()


def test_names_alone_do_not_tell():
    conv1d, _ = pair()
    report = gluon.Gluon(conv1d.named_parameters()).routing_report()
    assert report.splitlines()[1].split()[:4] == ["hidden", "scaled(sqrt(n/m),spectral)", "0.018", "6"]


def test_groups_copies_and_frozen_layers_keep_it():
    conv1d, linear = pair()
    optimizers = [gluon.Gluon(model) for model in (conv1d, linear)]
    for model, optimizer in zip((conv1d, linear), optimizers):
        model[0].c_attn.weight.requires_grad_(False)
        optimizer.param_groups[0]["weight_decay"] = 0.5
        train(model, optimizer)
        model[0].c_attn.weight.requires_grad_(True)
        train(model, optimizer)
    assert distance(conv1d, linear) < 1e-4
    copied = copy.deepcopy(optimizers[0])
    assert copied.routing_report() == optimizers[0].routing_report()


def test_it_is_no_head_by_its_shape():
    """(in, out) with as many inputs as words."""
    torch.manual_seed(0)
    model = torch.nn.ModuleDict({"wte": torch.nn.Embedding(OUT, IN), "c_proj": Conv1D(IN, OUT)})
    assert "*.c_proj" not in gluon.Gluon(model).routing_report()
    assert "scaled(sqrt(m/n),spectral)" in gluon.Gluon(model).routing_report()


def test_normalised_rows_are_inputs_which_is_said():
    conv1d, linear = pair()
    with pytest.warns(UserWarning, match="'0.c_attn.weight' stores its weight as .in, out., so that normuon"):
        gluon.Gluon(conv1d, preset="normuon")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gluon.Gluon(linear, preset="normuon")
        gluon.Gluon(conv1d)


def test_gpt2_of_transformers():
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    shape = {"vocab_size": 32, "n_positions": 8, "n_embd": 16, "n_layer": 2, "n_head": 2}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**shape, bos_token_id=0, eos_token_id=0))
    report = gluon.Gluon(model).routing_report()
    turned = [line.split() for line in report.splitlines() if "sqrt(m/n)" in line]
    kinds = ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
    assert [(row[0], row[3]) for row in turned] == [(f"transformer.h.*.{kind}.weight", "2") for kind in kinds]
    assert "hidden" not in report


def rows_of(recorder, column):
    return [(row["step"], row["layer"], row[column]) for row in recorder.rows()]


@pytest.mark.parametrize("preset", ["unscion", "adamw"])
@pytest.mark.parametrize("geometry", [None, RULES], ids=["own", "given"])
def test_smoothness_is_that_of_linear_layers(preset, geometry):
    recorders = []
    for model in pair():
        optimizer = gluon.Gluon(model, preset=preset)
        rules = geometry and gluon.Geometry(geometry)
        recorders.append(gluon.SmoothnessRecorder(optimizer, every=1, mode="full", geometry=rules))
        train(model, optimizer)
    for column in ("smoothness", "gradient"):
        ours, theirs = (rows_of(recorder, column) for recorder in recorders)
        assert len(ours) > 10
        assert [row[:2] for row in ours] == [row[:2] for row in theirs]
        assert [row[2] for row in ours] == pytest.approx([row[2] for row in theirs], rel=1e-2)


def test_the_geometry_of_one_optimizer_serves_another():
    model, other = pair()[0], pair()[0]
    first = gluon.Gluon(model, radius="auto", steps=10)
    second = gluon.Gluon(other, geometry=first.geometry)
    assert second.routing_report() == first.routing_report()
    assert repr(second.geometry) == repr(first.geometry)
    for one, optimizer in ((model, first), (other, second)):
        optimizer.start_on_spheres()
        optimizer.initialize(seed=3)
    assert distance(model, other) == 0


def test_spheres_and_initial_weights_are_those_of_linear_layers():
    conv1d, linear = pair()
    for model in (conv1d, linear):
        gluon.Gluon(model, radius="auto", steps=10).start_on_spheres()
    assert distance(conv1d, linear) < 1e-6
    for model in (conv1d, linear):
        gluon.Scion(model).initialize()
    lengths = [[p.norm().item() for p in model.parameters()] for model in (conv1d, linear)]
    assert lengths[0] == pytest.approx(lengths[1], rel=0.1)
