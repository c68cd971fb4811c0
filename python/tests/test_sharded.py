"""Layers shared over a process group: 2 and 3 gloo ranks, each with its share of the batch, train as one process does
with all of it. The ranks run every scenario of sharded_worker.py once; the tests look at what came out."""

import os
import pathlib
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from conftest import Net, needs_cuda, train
from sharded_worker import BATCH, MODES, PRESETS, STEPS, join_and_freeze, make, record_steps, run_steps, weights

import gluon

HERE = pathlib.Path(__file__).parent
WHOLE = slice(0, BATCH)
# Of how far a layer has moved. The ranks' mean differs from the whole batch's by rounding, which the sign of an entry
# near zero would amplify: hence float64, where 4e-13 was measured. In float32 normalized descent, which has no signs,
# differs by 6e-7.
BOUND = 1e-5

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="this torch has no torch.distributed")


def alone(preset="unscion", **options):
    model = Net(dtype=torch.float64)
    return model, make(model, preset, **options)


@pytest.fixture(scope="module", params=[2, 3])
def results(request, tmp_path_factory):
    """What each rank has to tell, in the order of ranks; the last entry is the folder."""
    folder = tmp_path_factory.mktemp("ranks")
    model, optimizer = alone()
    run_steps(model, optimizer, WHOLE)
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
    return [torch.load(folder / f"rank{rank}.pt") for rank in range(request.param)] + [folder]


def same(results, name):
    """The entry of rank 0, after a look that all ranks have the same bits."""
    first, *others = [rank[name] for rank in results[:-1]]
    assert all(flat(first) == flat(other) for other in others), name
    return first


def flat(thing):
    if isinstance(thing, torch.Tensor):
        return thing.tolist()
    if isinstance(thing, dict):
        return {key: flat(value) for key, value in thing.items()}
    return [flat(value) for value in thing] if isinstance(thing, (list, tuple)) else thing


def assert_close(trained, model, bound=BOUND, start=None):
    """`trained` (weights by name) has gone from `start` to where `model` is, within `bound` of the way."""
    start = start or weights(Net(dtype=model.up.weight.dtype))
    for name, parameter in model.named_parameters():
        moved = (parameter - start[name]).norm()
        assert (parameter - trained[name]).norm() <= bound * moved, name


@pytest.mark.parametrize("preset", PRESETS)
def test_ranks_train_as_one_process(results, preset):
    model, optimizer = alone(preset)
    run_steps(model, optimizer, WHOLE)
    for rank in results[:-1]:
        trained, state, radii, _ = rank["presets"][preset]
        assert_close(trained, model)
        assert radii == pytest.approx(optimizer.effective_radii())
        assert flat(trained) == flat(results[0]["presets"][preset][0])
        assert flat(state) == flat(results[0]["presets"][preset][1])


@pytest.mark.parametrize("preset", PRESETS)
def test_momentum_is_divided(results, preset):
    model, optimizer = alone(preset)
    kept = [rank["presets"][preset][3] for rank in results[:-1]]
    assert sum(kept) == optimizer.state_bytes()
    if preset in ("unscion", "scion", "muon"):
        assert all(0 < bytes_here < optimizer.state_bytes() for bytes_here in kept)


@pytest.mark.parametrize("name", ["Muon", "Scion"])
def test_muon_and_scion(results, name):
    model = Net(dtype=torch.float64)
    run_steps(model, getattr(gluon, name)(model.named_parameters()), WHOLE)
    assert_close(same(results, "methods")[name], model)


@pytest.mark.parametrize("bucket_views", [False, True])
def test_inside_ddp(results, bucket_views):
    model, optimizer = alone()
    run_steps(model, optimizer, WHOLE)
    assert_close(same(results, "inside_ddp")[bucket_views], model)


def test_single_precision(results):
    model = Net()
    run_steps(model, make(model, "normalized_descent", radius=0.05), WHOLE)
    assert_close(same(results, "single_precision"), model)


def test_schedulers(results):
    model, optimizer = alone()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    run_steps(model, optimizer, WHOLE, scheduler=scheduler)
    trained, radii = same(results, "with_scheduler")
    assert_close(trained, model)
    assert radii == pytest.approx(optimizer.effective_radii())


def test_a_state_goes_from_one_process_to_ranks(results):
    model, optimizer = alone()
    run_steps(model, optimizer, WHOLE, STEPS)
    start = weights(model)
    run_steps(model, optimizer, WHOLE, 2, STEPS)
    trained, steps = same(results, "resumed")
    assert steps == STEPS + 2
    assert_close(trained, model, start=start)


def test_a_state_goes_from_ranks_to_one_process(results):
    expected, reference = alone()
    run_steps(expected, reference, WHOLE)
    trained, state, _, _ = results[0]["presets"]["unscion"]
    model = Net(1, dtype=torch.float64)
    model.load_state_dict(trained, strict=False)
    resumed = make(model)
    resumed.load_state_dict(state)
    start = weights(expected)
    run_steps(expected, reference, WHOLE, 2, STEPS)
    run_steps(model, resumed, WHOLE, 2, STEPS)
    assert_close(weights(model), expected, start=start)


def test_layers_that_join_and_freeze(results):
    model, optimizer = join_and_freeze(None, WHOLE)
    with pytest.warns(UserWarning, match="'up.weight' has no gradient"):
        run_steps(model, optimizer, WHOLE, 2, 6)
    trained, state = same(results, "joining")
    assert_close(trained, model)
    assert sorted(state) == sorted(optimizer.state_dict()["state"])


def test_a_gradient_that_one_rank_has_moves_the_layer_everywhere(results):
    moved, unmoved = same(results, "lone_gradient")
    assert torch.equal(moved.sign(), torch.tensor([[-1.0, 1.0], [0.0, -1.0]]))
    assert not unmoved.any()


def test_more_ranks_than_layers(results):
    ranks = len(results) - 1
    kept = [rank["one_layer"][3] for rank in results[:-1]]
    assert sorted(kept) == [0] * (ranks - 1) + [16]
    for rank in results[:-1]:
        weight, state, radii, _ = rank["one_layer"]
        assert torch.equal(weight, torch.full((2, 2), -1.5))
        assert radii == {"w": 0.5}
        mean = sum(range(ranks)) / ranks
        assert state["gluon"]["step"] == 3
        assert torch.allclose(state["state"]["w"]["momentum"], torch.full((2, 2), mean * (1 - 0.5**3)))


def test_a_layer_in_another_order_of_memory(results):
    _, ratio = same(results, "transposed")
    assert torch.allclose(ratio, torch.full((3, 5), 0.1), rtol=1e-5)


def test_tensors_that_go_through_another_device(results):
    model, optimizer = alone()
    run_steps(model, optimizer, WHOLE)
    trained, state = same(results, "staged")
    assert_close(trained, model)
    assert sorted(state) == sorted(optimizer.state_dict()["state"])


def test_a_subgroup(results):
    first, *others = [rank["subgroup"] for rank in results[:-1]]
    assert first == ("ValueError", "process_group: rank 0 is not one of its members")
    model, optimizer = alone()
    run_steps(model, optimizer, WHOLE)
    for index, (trained, state, rank) in enumerate(others):
        assert_close(trained, model)
        assert sorted(state) == sorted(optimizer.state_dict()["state"])
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
        ("deepcopy", "TypeError", "an optimizer with a process group is neither copied nor pickled"),
        ("pickle", "TypeError", "an optimizer with a process group is neither copied nor pickled"),
        ("save", "TypeError", "an optimizer with a process group is neither copied nor pickled"),
        ("other_recorder", "ValueError", "ranks differ in their recorders: rank 0 has 'every 2, mode"),
        ("no_file", "ValueError", "/no/such/folder/smoothness.csv"),
        ("recorded_join", "ValueError", "parameters that join now change which rank owns which layer"),
    ],
)
def test_an_error_on_one_rank_is_one_on_all(results, case, kind, text):
    for rank in results[:-1]:
        said = rank["errors"][case]
        assert said[0] == kind and text in said[1], said


@pytest.mark.parametrize("mode", MODES)
def test_ranks_measure_as_one_process(results, mode):
    model, optimizer = alone()
    expected = record_steps(model, optimizer, WHOLE, mode).rows()
    rows, trained, written = same(results, "recorded")[mode]
    assert len(expected) == len(rows) == len(written) > 0
    for row, one in zip(sorted(rows, key=place), sorted(expected, key=place)):
        for key, value in one.items():
            assert row[key] == (pytest.approx(value, rel=1e-9) if isinstance(value, float) else value), key
    assert [row["smoothness"] for row in sorted(written, key=place)] == [
        row["smoothness"] for row in sorted(rows, key=place)
    ]
    assert flat(trained) == flat(results[0]["presets"]["unscion"][0]), "recording changes nothing"


def place(row):
    return row["step"], row["layer"]


def test_a_bad_gradient_moves_nothing(results):
    for rank in results[:-1]:
        assert not rank["errors"]["nan_moved"]
        assert rank["errors"]["skipped"] == (1, 0)


def test_what_is_no_group(results):
    for rank in results[:-1]:
        assert rank["before"] == (
            "ValueError", "process_group: call torch.distributed.init_process_group() before the optimizer is made",
        )  # fmt: skip
        assert rank["no_group"][0] == "ValueError" and "torch.distributed.group.WORLD, got str" in rank["no_group"][1]


def test_a_lost_rank_ends_the_others(results):
    folder = results[-1]
    for rank in range(len(results) - 2):
        kind, text = torch.load(folder / f"lost{rank}.pt")
        assert kind == "RankLost"
        assert f"rank {rank} of {len(results) - 1}: an exchange with the other ranks failed (RuntimeError: " in text


@needs_cuda
@pytest.mark.skipif(not dist.is_nccl_available(), reason="this torch has no NCCL")
def test_one_rank_over_nccl_trains_as_without(tmp_path):
    dist.init_process_group("nccl", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        trained = []
        for group in (None, dist.group.WORLD):
            model = Net(dtype=torch.float64).cuda()
            train(model, make(model, process_group=group), STEPS)
            trained.append(weights(model))
    finally:
        dist.destroy_process_group()
    alone, ranked = trained
    assert all(torch.allclose(alone[name], ranked[name], rtol=0, atol=1e-9) for name in alone)


def test_rank_lost_is_a_runtime_error():
    assert issubclass(gluon.RankLost, RuntimeError)
