"""Norms, the orthogonalizers, the recorder, the fit and the theory."""

import math
from pathlib import Path

import pytest
import torch
from conftest import same_bits, train, trained

import gluon

NORMS = ["spectral", "max_entry", "euclidean", "columns", "rows", "scaled(sqrt(n/m),spectral)"]


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("shape", [(4, 6), (3, 4, 6), (5,), (4, 2, 3, 3)])
def test_lmo_attains_the_dual_norm(name, shape):
    g = torch.randn(shape, dtype=torch.float64)
    z = gluon.norms.lmo(g, name, orthogonalizer="svd")
    assert z.shape == g.shape
    batch = shape[0] if len(shape) == 3 else 1
    inner = (g * z).reshape(batch, -1).sum(1)
    dual, length = gluon.norms.dual_norm(g, name), gluon.norms.norm(z, name)
    assert dual.shape == length.shape == (torch.Size([3]) if len(shape) == 3 else torch.Size([]))
    assert torch.allclose(inner, -dual.reshape(-1))
    assert torch.allclose(length, torch.ones_like(length))


def test_norms_by_hand():
    x = torch.tensor([[3.0, 0.0], [0.0, 4.0]])
    assert gluon.norms.norm(x, "euclidean").item() == 5
    assert gluon.norms.dual_norm(x, "max_entry").item() == 7
    assert gluon.norms.norm(torch.ones(2, 3, 4), "euclidean", role="conv").item() == pytest.approx(math.sqrt(24))


@pytest.mark.parametrize("method", ["svd", "polar_express:8", "newton_schulz:5"])
def test_orthogonalize(method):
    x = torch.randn(3, 5, 8)
    q = gluon.orthogonalize(x, method)
    values = torch.linalg.svdvals(q)
    assert values.min() > 0.3 if method.startswith("newton") else (values - 1).abs().max() < 1e-2


def recorded(steps, make=gluon.Gluon, **options):
    model, optimizer = trained(0, make)
    recorder = gluon.SmoothnessRecorder(optimizer, **options)
    train(model, optimizer, steps)
    return model, recorder


def test_recording_does_not_change_the_run():
    model, recorder = recorded(7, every=2)
    assert same_bits(model, trained(7)[0])
    rows = recorder.rows()
    assert sorted({row["step"] for row in rows}) == [1, 3, 5]
    assert {row["layer"] for row in rows} == {name for name, _ in model.named_parameters()}


def test_no_sample_starts_before_start():
    _, recorder = recorded(9, every=2, start=3)
    assert sorted({row["step"] for row in recorder.rows()}) == [5, 7]


def test_csv_and_fit(tmp_path):
    model, recorder = recorded(12, gluon.Muon, every=1, mode="consecutive")
    path = tmp_path / "smoothness.csv"
    recorder.to_csv(path)
    recorder.to_csv(path)
    again = gluon.read_trajectory(str(path))
    assert len(again) == len(recorder.trajectory) == 11 * len(list(model.parameters()))
    ours, theirs = gluon.fit(recorder), gluon.fit(path)
    assert [x.layer for x in ours.layers] == [x.layer for x in theirs.layers]
    assert [x.fit.l1 for x in ours.layers] == pytest.approx([x.fit.l1 for x in theirs.layers])
    assert {radius.group for radius in ours.radii()} >= {"hidden", "embedding", "vector"}


def test_dataframe():
    pandas = pytest.importorskip("pandas")
    _, recorder = recorded(3, every=1)
    frame = recorder.to_dataframe()
    assert isinstance(frame, pandas.DataFrame) and len(frame) == len(recorder.trajectory)


def test_same_batch_needs_its_reference(model):
    optimizer = gluon.Gluon(model.named_parameters())
    recorder = gluon.SmoothnessRecorder(optimizer, every=3, mode="same_batch")
    model.loss(0).backward()
    with pytest.raises(ValueError, match="same_batch needs take_reference"):
        optimizer.step()
    for step in range(4):
        if recorder.needs_reference():
            optimizer.zero_grad()
            model.loss(step + 1).backward()
            recorder.take_reference()
        train(model, optimizer, 1, step)
    assert {row["step"] for row in recorder.rows()} == {1}
    assert {row["estimator"] for row in recorder.rows()} == {"same_batch"}


def test_the_guides_lines_measure_one_batch(model):
    guide = (Path(__file__).parents[2] / "docs" / "python.md").read_text()
    code = guide.split("## Smoothness of one batch")[1].split("```python\n")[1].split("```")[0]
    names = {"gluon": gluon, "optimizer": gluon.Gluon(model.named_parameters()), "model": model, "batches": range(4)}
    names["loss"] = lambda model, batch: model.loss(batch)
    exec(code, names)
    assert {row["step"] for row in names["recorder"].rows()} == {1}


@pytest.mark.parametrize(
    "make, kind, text",
    [
        (lambda ours, _: gluon.SmoothnessRecorder(ours, every=0), ValueError, "every must be >= 1"),
        (lambda ours, _: gluon.SmoothnessRecorder(ours, start=-1), ValueError, "start must be >= 0, got -1"),
        (lambda ours, _: gluon.SmoothnessRecorder(ours, mode="both"), ValueError, "allowed|consecutive"),
        (lambda _, torchs: gluon.SmoothnessRecorder(torchs), TypeError, "expected a gluon optimizer, got SGD"),
        (lambda *_: gluon.fit([1.0], [1.0]), ValueError, ""),
        (lambda *_: gluon.fit([1.0, 2.0], [1.0, 2.0], hinge=-1), ValueError, ""),
        (lambda *_: gluon.fit([1.0, 2.0]), TypeError, "fit: expected a recorder"),
        (lambda *_: gluon.theory.theorem1([1.0, 2.0, 3.0], [1.0], 1.0), ValueError, "expected one L1 per layer"),
        (lambda *_: gluon.theory.theorem1(-1.0, 1.0, 1.0), ValueError, ""),
        (lambda *_: gluon.norms.norm(torch.ones(2, 2), "nuclear"), ValueError, "nuclear"),
        (lambda *_: gluon.norms.norm(torch.ones(2, 2, dtype=torch.int64), "euclidean"), ValueError, ""),
    ],
)
def test_bad_arguments(model, make, kind, text):
    with pytest.raises(kind, match=text):
        make(gluon.Gluon(model.named_parameters()), torch.optim.SGD(model.parameters(), lr=1))


def test_fit_of_numbers():
    fit = gluon.fit([2.0, 4.0, 6.0], [1.0, 2.0, 3.0], l0_zero=True)
    assert (fit.l0, fit.l1, fit.samples) == (0, pytest.approx(2), 3)


def test_the_start_is_left_out_if_it_is_far_above_the_rest():
    gradient = [1.0, 2.0, 3.0, 1.5, 2.5, 1.0, 2.0, 3.0]
    smoothness = [1 + 2 * g for g in gradient]
    assert gluon.fit(smoothness, gradient).left_out == 0
    smoothness[0] *= 100
    fit = gluon.fit(smoothness, gradient)
    assert (fit.l0, fit.l1) == (pytest.approx(1), pytest.approx(2))
    assert (fit.left_out, fit.samples, fit.doubt) == (1, 7, "")
    assert "left_out=1" in repr(fit)
    papers = gluon.fit(smoothness, gradient, skip_first=0)
    assert (papers.left_out, papers.samples) == (0, 8)
    assert papers.doubt == "88 % of the samples are below half of the line"
    assert papers.doubt in repr(papers)
    with pytest.raises(ValueError, match="skip-first must be >= 0 samples, got -1"):
        gluon.fit(smoothness, gradient, skip_first=-1)


def test_the_start_of_a_run_does_not_decide_its_radii():
    run = Path(__file__).parents[2] / "tests/baselines/scion_smoothness.csv"
    by_default, without_first = ({radius.group: radius for radius in gluon.fit(run, **options).radii()}
                                 for options in ({}, {"skip_first": 1}))
    assert set(by_default) == {"hidden", "embedding"}
    for group, radius in without_first.items():
        assert radius.predicted / 2 < by_default[group].predicted < 2 * radius.predicted
        assert by_default[group].doubt == ""


def test_theory():
    guarantee = gluon.theory.theorem1([1.0, 2.0], [0.5, 1.0], 3.0)
    assert guarantee.iterations(0.1) == math.ceil(2 * 3 * 3 / 0.01 + 2 * 3 * 1 / 0.1)
    assert guarantee.bound(guarantee.iterations(0.1)) <= 0.1
    assert gluon.theory.theorem1_radius(1.0, 2.0, 4.0) == pytest.approx(4 / 9)
    noisy, exact = gluon.theory.theorem2(1.0, 1.0, 1.0, zeta=0.5), gluon.theory.theorem1(1.0, 1.0, 1.0)
    assert noisy.iterations(0.1) > exact.iterations(0.1)
    assert gluon.theory.theorem3_beta(3) == 0.5
    assert gluon.theory.theorem3(1.0, 0.0, 1.0, sigma=1.0, t=[0.1]).momentum == "theorem3"
    rows = gluon.theory.table1(1.0, 0.0, 1.0, precision=0.1, noise="variance", sigma=1.0, t=0.5)
    assert [row.layer_wise for row in rows] == [False] * 4 + [True] * 2
    noisy3 = gluon.theory.theorem3(1.0, 0.0, 1.0, sigma=1.0, t=0.5)
    assert rows[-1].iterations == noisy3.iterations(0.1 * 0.5)
    assert gluon.theory.table1(1.0, 0.0, 1.0, precision=0.1)[4].iterations == 200
