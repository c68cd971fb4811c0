"""Layers shared over a process group: 2 and 3 gloo ranks, each with its share of the batch, train like one process with
the whole batch. The ranks run every scenario of sharded_worker.py once; the tests check the results."""

import os
import pathlib
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from conftest import Net, needs_cuda, train
from sharded_worker import (
    MODES, PRESETS, SCENARIOS, STEPS, WHOLE, make, new_net, outcome, record_steps, run_steps, weights,
)  # fmt: skip

import gluon

HERE = pathlib.Path(__file__).parent
# Relative to how far a layer has moved. The mean over ranks differs from the whole batch's by rounding, which the sign
# of an entry near zero amplifies: hence float64, where 4e-13 was measured. In float32 normalized descent, which has no
# signs, differs by 6e-7.
BOUND = 1e-5

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="this torch has no torch.distributed")


@pytest.fixture(scope="module", params=[2, 3])
def folder(request, tmp_path_factory):
    """The folder with the results of the ranks."""
    folder = tmp_path_factory.mktemp("ranks")
    model, optimizer = SCENARIOS["unscion"](None, WHOLE)
    torch.save((model.state_dict(), optimizer.state_dict()), folder / "single.pt")
    # The loopback interface: a machine's own name need not resolve.
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(HERE / "sharded_worker.py")]
    ranks = [
        subprocess.Popen([*command, str(rank), str(request.param), str(folder)], env=environment)
        for rank in range(request.param)
    ]
    try:
        assert [rank.wait(timeout=200) for rank in ranks] == [0] * len(ranks)
    finally:
        for rank in ranks:
            rank.kill()
    return folder


@pytest.fixture(scope="module")
def results(folder):
    """The results of each rank."""
    return [torch.load(path) for path in sorted(folder.glob("rank*.pt"))]


def same(results, name):
    """The entry of rank 0, which must have the same bits on all ranks."""
    first, *others = [rank[name] for rank in results]
    assert all(flat(first) == flat(other) for other in others), name
    return first


def flat(thing):
    if isinstance(thing, torch.Tensor):
        return thing.tolist()
    if isinstance(thing, dict):
        return {key: flat(value) for key, value in thing.items()}
    return [flat(value) for value in thing] if isinstance(thing, (list, tuple)) else thing


def assert_close(trained, expected, start=None):
    """All weights by name: `trained` and `expected` went the same way from `start`, within BOUND of its length."""
    start = start or weights(Net(dtype=expected["up.weight"].dtype))
    for name, parameter in expected.items():
        moved = (parameter - start[name]).norm()
        assert (parameter - trained[name]).norm() <= BOUND * moved, name


@pytest.mark.parametrize("name", SCENARIOS)
def test_ranks_train_like_one_process(results, name):
    expected, expected_state, expected_radii, _ = outcome(name)
    for rank in results:
        trained, state, radii, _ = rank[name]
        assert_close(trained, expected)
        assert radii == pytest.approx(expected_radii)
        assert state["gluon"] == expected_state["gluon"]
        assert sorted(state["state"]) == sorted(expected_state["state"])
        assert flat((trained, state)) == flat(results[0][name][:2])


@pytest.mark.parametrize("preset", PRESETS)
def test_momentum_is_divided(results, preset):
    *_, whole = outcome(preset)
    shares = [rank[preset][3] for rank in results]
    assert sum(shares) == whole
    if preset in ("unscion", "scion", "muon"):
        assert all(0 < size < whole for size in shares)


def test_state_moves_from_one_process_to_ranks(results):
    model, optimizer = SCENARIOS["unscion"](None, WHOLE)
    start = weights(model)
    run_steps(model, optimizer, WHOLE, 2, STEPS)
    trained, steps = same(results, "resumed")
    assert steps == STEPS + 2
    assert_close(trained, weights(model), start)


def test_state_moves_from_ranks_to_one_process(results):
    expected, reference = SCENARIOS["unscion"](None, WHOLE)
    trained, state, _, _ = results[0]["unscion"]
    model = new_net(1)
    model.load_state_dict(trained, strict=False)
    resumed = make(model)
    resumed.load_state_dict(state)
    start = weights(expected)
    run_steps(expected, reference, WHOLE, 2, STEPS)
    run_steps(model, resumed, WHOLE, 2, STEPS)
    assert_close(weights(model), weights(expected), start)


def test_live_state_is_whole_on_all_ranks(results):
    for rank in results:
        assert len(rank["live_state"]) == 2 * 2 + 6 * 3 and all(rank["live_state"])


def test_gradient_on_one_rank_moves_the_layer_on_all(results):
    moved, unmoved = same(results, "lone_gradient")
    assert torch.equal(moved.sign(), torch.tensor([[-1.0, 1.0], [0.0, -1.0]]))
    assert not unmoved.any()


def test_more_ranks_than_layers(results):
    ranks = len(results)
    assert sorted(rank["one_layer"][3] for rank in results) == [0] * (ranks - 1) + [16]
    for rank in results:
        trained, state, radii, _ = rank["one_layer"]
        assert torch.equal(trained["w"], torch.full((2, 2), -1.5))
        assert radii == {"w": 0.5}
        mean = sum(range(ranks)) / ranks
        assert state["gluon"]["step"] == 3
        assert torch.allclose(state["state"]["w"]["momentum"], torch.full((2, 2), mean * (1 - 0.5**3)))


def test_layer_in_column_major_order(results):
    _, ratio = same(results, "transposed")
    assert torch.allclose(ratio, torch.full((3, 5), 0.1), rtol=1e-5)


def test_subgroup(results):
    first, *others = [rank["subgroup"] for rank in results]
    assert first == ("ValueError", "process_group: rank 0 is not one of its members")
    expected, expected_state, _, _ = outcome("unscion")
    for index, ((trained, state, _, _), rank) in enumerate(others):
        assert_close(trained, expected)
        assert sorted(state["state"]) == sorted(expected_state["state"])
        assert rank == index


@pytest.mark.parametrize(
    "case, kind, text",
    [
        ("nan", "NonFiniteGradient", "holds NaN or Inf at step 1; nothing was updated"),
        ("skip", "none", ""),
        ("bad_state", "ValueError", "optimizer state: 'momentum/"),
        ("no_groups", "ValueError", "no 'param_groups'; it was not saved by a Gluon optimizer"),
        ("other_step", "ValueError", "ranks differ in their states: rank "),
        ("other_values", "ValueError", "ranks differ in their parameters (broadcast them from one rank"),
        ("other_layers", "ValueError", "ranks differ in their layers or settings: rank "),
        ("other_option", "ValueError", "ranks differ in their layers or settings: rank "),
        ("bad_option", "ValueError", "beta must be in [0, 1), got 2"),
        ("deepcopy", "TypeError", "an optimizer with a process group cannot be copied or pickled"),
        ("pickle", "TypeError", "an optimizer with a process group cannot be copied or pickled"),
        ("save", "TypeError", "an optimizer with a process group cannot be copied or pickled"),
        ("other_recorder", "ValueError", "ranks differ in their recorders: rank 0 has 'every 2, start 0, mode"),
        ("no_file", "ValueError", "/no/such/folder/smoothness.csv"),
        ("recorded_join", "ValueError", "adding parameters would change which rank owns which layer"),
        ("before", "ValueError", "process_group: call torch.distributed.init_process_group() before creating"),
        ("no_group", "ValueError", "torch.distributed.group.WORLD, got str"),
    ],
)
def test_error_on_one_rank_is_raised_on_all(results, case, kind, text):
    for rank in results:
        error = rank["errors"][case]
        assert error[0] == kind and text in error[1], error


@pytest.mark.parametrize("mode", MODES)
def test_ranks_measure_like_one_process(results, mode):
    model = new_net()
    expected = record_steps(model, make(model), WHOLE, mode).rows()
    rows, trained, written = same(results, "recorded")[mode]
    assert len(expected) == len(rows) == len(written) > 0
    tables = (rows, written, expected)
    rows, written, expected = (sorted(table, key=lambda row: (row["step"], row["layer"])) for table in tables)
    for row, one in zip(rows, expected):
        for key, value in one.items():
            assert row[key] == (pytest.approx(value, rel=1e-9) if isinstance(value, float) else value), key
    assert [row["smoothness"] for row in written] == [row["smoothness"] for row in rows]
    assert flat(trained) == flat(results[0]["unscion"][0]), "recording changed the run"


def test_bad_gradient_moves_nothing(results):
    for rank in results:
        assert not rank["errors"]["nan_moved"]
        assert rank["errors"]["skipped"] == (1, 0)


def test_lost_rank_ends_the_others(results, folder):
    assert issubclass(gluon.RankLost, RuntimeError)
    for rank in range(len(results) - 1):
        kind, text = torch.load(folder / f"lost{rank}.pt")
        assert kind == "RankLost"
        assert f"rank {rank} of {len(results)}: an exchange with the other ranks failed (RuntimeError: " in text


@needs_cuda
@pytest.mark.skipif(not dist.is_nccl_available(), reason="this torch has no NCCL")
def test_one_nccl_rank_trains_like_no_group(tmp_path):
    dist.init_process_group("nccl", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        trained = []
        for group in (None, dist.group.WORLD):
            model = new_net().cuda()
            train(model, make(model, process_group=group), STEPS)
            trained.append(weights(model))
    finally:
        dist.destroy_process_group()
    alone, ranked = trained
    assert all(torch.allclose(alone[name], ranked[name], rtol=0, atol=1e-9) for name in alone)
