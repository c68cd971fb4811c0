"""Parameters in shards, as fully_shard() makes them: 2, 3 and 4 gloo ranks train as one, bit for bit, given the same
gradients. The ranks run everything in fsdp_worker.py once, on what fsdp_cases.py has; the tests check the results."""

import os
import pathlib
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from conftest import needs_cuda, needs_torch
from fsdp_cases import CASES, RESUMED, STEPS, outcome_of, run_case, take_steps
from fsdp_worker import FORWARD, SAVED, changes, trained_net
from sharded_worker import weights

HERE = pathlib.Path(__file__).parent
RANKS = [4, 2, 3]  # four ranks save what the others load

pytestmark = needs_torch(2, 5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fsdp")
    model, optimizer = run_case("unscion", steps=SAVED)
    torch.save((weights(model), optimizer.state_dict()), folder / "single.pt")
    # The loopback interface: a machine's own name need not resolve.
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    for ranks in RANKS:
        command = [sys.executable, str(HERE / "fsdp_worker.py")]
        processes = [
            subprocess.Popen([*command, str(rank), str(ranks), str(folder)], env=environment) for rank in range(ranks)
        ]
        try:
            assert [process.wait(timeout=200) for process in processes] == [0] * ranks
        finally:
            for process in processes:
                process.kill()
    return folder


@pytest.fixture(params=RANKS)
def results(request, folder):
    """The results of each rank."""
    return [torch.load(folder / f"rank{rank}of{request.param}.pt") for rank in range(request.param)]


def assert_same_bits(found, expected):
    weights, state, radii = found
    for name, tensor in expected[0].items():
        assert torch.equal(weights[name], tensor), name
    assert {name: sorted(kinds) for name, kinds in state.items()} == {
        name: sorted(kinds) for name, kinds in expected[1].items()
    }
    for name, kinds in expected[1].items():
        assert all(torch.equal(state[name][kind], tensor) for kind, tensor in kinds.items()), name
    assert radii == expected[2]


@pytest.mark.parametrize("name", CASES)
def test_ranks_have_the_bits_of_one(results, name):
    expected = outcome_of(*run_case(name))
    for rank in results:
        assert_same_bits(rank["cases"][name], expected)


def test_replicated_and_plain_parameters_beside_shards(results):
    for rank in results:
        assert_same_bits(rank["replicated"], outcome_of(*run_case("unscion")))


@pytest.mark.skipif(not FORWARD, reason=f"fully_shard() of torch {torch.__version__} runs no model on CPUs")
def test_a_model_trains_by_its_own_gradients(results):
    expected = trained_net()
    for rank in results:
        for name, tensor in expected.items():  # the mean of equal gradients is rounded
            assert torch.allclose(rank["net"][name], tensor, rtol=0, atol=1e-9), name


@pytest.mark.parametrize("name", [*RESUMED, "older"])
def test_a_checkpoint_of_four_ranks_resumes_on_fewer(folder, name):
    """Also in an optimizer that is older than its shards."""
    expected = outcome_of(*run_case("muon" if name == "older" else name))
    for ranks in (2, 3):
        steps, *found = torch.load(folder / f"rank0of{ranks}.pt")["resumed"][name]
        assert steps == SAVED
        assert_same_bits(found, expected)


@pytest.mark.parametrize("name", RESUMED)
def test_replicas_of_shards(folder, name):
    expected = outcome_of(*run_case(name))
    for rank in range(4):
        assert_same_bits(torch.load(folder / f"rank{rank}of4.pt")["hybrid"][name], expected)


def test_state_of_one_rank_loads_into_shards(results):
    for rank in results:
        assert_same_bits(rank["one_rank"], outcome_of(*run_case("unscion")))


def test_a_whole_state_moves_between_shards_and_one_rank(folder, results):
    expected = outcome_of(*run_case("Muon"))
    for rank in results:
        assert_same_bits(rank["from_whole"], expected)
    model, optimizer = run_case("Muon", steps=0)
    parameters, state = torch.load(folder / "whole.pt")
    model.load_state_dict(parameters)
    optimizer.load_state_dict(state)
    take_steps(model, optimizer, STEPS - SAVED, SAVED)
    assert_same_bits(outcome_of(model, optimizer), expected)


def test_a_step_has_two_exchanges_and_none_for_layers_that_step_alone(results):
    for rank in results:
        # Gradients and parameters to the owners, parameters back; and which layers have a finite gradient.
        assert rank["messages"]["Mixed"] == {"all_to_all_single": 6, "all_reduce": 3}
        assert rank["messages"]["Apart"] == {"all_reduce": 3}


def test_large_models_are_sent_in_windows(results):
    for rank in results:
        messages, outcome = rank["windows"]
        assert messages > 12
        assert_same_bits(outcome, outcome_of(*run_case("unscion")))


def test_edited_parameters_and_changed_groups(results):
    expected = changes(lambda model: model)
    for rank in results:
        assert_same_bits(rank["changes"], expected)


def test_parameters_that_are_replaced_by_shards_keep_their_momentum(results):
    for rank in results:
        assert_same_bits(rank["replaced"], outcome_of(*run_case("Muon")))


def test_momentum_is_divided_and_placed_as_its_parameter(results):
    _, whole = run_case("muon", steps=2)
    shares = [rank["live_state"][0] for rank in results]
    # An empty shard steps as a row of zeros.
    assert whole.state_bytes() <= sum(shares) < 1.2 * whole.state_bytes()
    assert max(shares) < whole.state_bytes()
    kinds = results[0]["live_state"][1]
    assert kinds["up.weight"] == ["momentum_buffer", "step"]
    assert sorted(kinds["norm.bias"]) == ["exp_avg", "exp_avg_sq", "step"]


@pytest.mark.parametrize(
    "case, kind, text",
    [
        ("columns", "ValueError", "'w' has the placements (Shard(dim=1),); allowed are Replicate() and, in at"),
        ("twice", "ValueError", "'w' has the placements (Shard(dim=0), Shard(dim=0)); allowed are"),
        ("tensor_parallel", "ValueError", "'w' has the placements (Shard(dim=0), Shard(dim=1)); allowed are"),
        ("partial", "ValueError", "'w' has the placements (Partial("),
        ("other_mesh", "ValueError", "'v' is sharded over DeviceMesh("),
        ("descending", "ValueError", "whose ranks must ascend"),
        ("uneven", "ValueError", " rows of 'w', expected "),
        ("process_group", "ValueError", "process_group: 'w' is a DTensor, of which a rank may hold a part; leave"),
        ("clip", "ValueError", "adamw_clip: 'w' is sharded, and no rank has the length of its gradient"),
        ("normalize", "ValueError", "normalize: 'w' has normuon("),
        ("other_option", "ValueError", "ranks differ in their layers or settings: rank "),
        ("nan", "NonFiniteGradient", "the gradient of layer 'w' holds NaN or Inf at step 1; nothing was updated"),
        ("skip", "none", ""),
        ("gradient", "ValueError", "the gradient of 'w' has the placements (Shard(dim=1),), expected those of the"),
        ("deepcopy", "TypeError", "an optimizer of DTensors cannot be copied or pickled"),
        ("pickle", "TypeError", "an optimizer of DTensors cannot be copied or pickled"),
        ("save", "TypeError", "an optimizer of DTensors cannot be copied or pickled"),
        ("recorder", "ValueError", "SmoothnessRecorder: 'w' is a DTensor"),
        ("observer", "ValueError", "add_observer: 'w' is a DTensor, of which a rank may hold a part; observers"),
        ("initialize", "ValueError", "initialize: 'w' is a DTensor, of which a rank may hold a part; call it before"),
        ("start_on_spheres", "ValueError", "start_on_spheres: 'w' is a DTensor"),
        ("misplaced", "ValueError", "optimizer state: 'momentum/w' has the placements (Shard(dim=1),) on"),
        ("unknown", "ValueError", "optimizer state: 'velocity/w' belongs to no layer of this optimizer"),
        ("missing", "ValueError", "optimizer state: 'momentum/w' is missing"),
        ("whole", "ValueError", "state_dict: 'momentum/w' is a DTensor, and no parameter is one; save the whole with"),
        ("swapped", "ValueError", "the model has another 'embed.weight' than when the optimizer was made; make it"),
        ("swapped_names", "ValueError", "none has a gradient, 'embed.weight' the first; if fully_shard() replaced"),
        ("replaced", "ValueError", "'embed.weight' of group 0 was replaced by one that is placed otherwise on its"),
    ],
)
def test_errors(results, case, kind, text):
    for rank in results:
        error = rank["errors"][case]
        assert error[0] == kind and text in error[1], error


def test_the_guides_lines_run(results, folder):
    assert "spectral" in results[0]["guide"] and list((folder / "guide").glob("*.distcp"))


@needs_cuda
@pytest.mark.skipif(not dist.is_nccl_available(), reason="this torch has no NCCL")
def test_one_nccl_rank_trains_like_no_shards(tmp_path):
    from fsdp_worker import over
    from torch.distributed.device_mesh import init_device_mesh

    dist.init_process_group("nccl", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        shard = over(init_device_mesh("cuda", (1,)))
        alone, sharded = trained_net(device="cuda"), trained_net(shard, "cuda")
    finally:
        dist.destroy_process_group()
    assert all(torch.allclose(alone[name], sharded[name], rtol=0, atol=1e-9) for name in alone)


def test_bad_gradient_moves_nothing(results):
    for rank in results:
        assert rank["errors"]["skipped"] == (1, 0, True)
