"""Hugging Face's Accelerate: prepare(), gradient accumulation, clipping, save_state() and load_state()."""

import os
import pathlib
import subprocess
import sys

import pytest
import torch
from conftest import Net, needs_torch, same_bits
from fsdp_worker import FORWARD

import gluon

accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed")

STEPS = 6
RANKS = 2


@pytest.fixture
def accelerator():
    yield accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerate.state.GradientState._reset_state()


def prepared(accelerator, seed=0):
    model = Net(seed)
    optimizer = gluon.Muon(model.named_parameters(), lr=0.02)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0.1, STEPS)
    return accelerator.prepare(model, optimizer, scheduler)


def train(accelerator, model, optimizer, scheduler, steps, start=0):
    """Each step sums two batches."""
    for batch in range(2 * start, 2 * (start + steps)):
        with accelerator.accumulate(model):
            accelerator.backward(model.loss(batch))
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 100.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()


def plain(steps):
    """The same without Accelerate."""
    model = Net()
    optimizer = gluon.Muon(model.named_parameters(), lr=0.02)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0.1, STEPS)
    for step in range(steps):
        for batch in (2 * step, 2 * step + 1):
            (model.loss(batch) / 2).backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    return model, optimizer


def test_prepared_training_has_the_bits_of_a_plain_loop(accelerator):
    model, optimizer, scheduler = prepared(accelerator)
    assert isinstance(optimizer, accelerate.optimizer.AcceleratedOptimizer)
    assert optimizer.param_groups is optimizer.optimizer.param_groups
    train(accelerator, model, optimizer, scheduler, STEPS)
    expected, alone = plain(STEPS)
    assert same_bits(accelerator.unwrap_model(model), expected)
    assert optimizer.param_groups[0]["lr"] == alone.param_groups[0]["lr"] == pytest.approx(0.002)
    assert optimizer.optimizer.steps_taken == STEPS


def test_a_saved_state_resumes_with_the_same_bits(accelerator, tmp_path):
    first = prepared(accelerator)
    train(accelerator, *first, STEPS // 2)
    accelerator.save_state(str(tmp_path / "saved"))
    train(accelerator, *first, STEPS - STEPS // 2, STEPS // 2)
    accelerator.free_memory()
    second = prepared(accelerator, seed=5)
    accelerator.load_state(str(tmp_path / "saved"))
    assert second[1].optimizer.steps_taken == STEPS // 2
    assert second[1].param_groups[0]["lr"] == pytest.approx(0.011)
    train(accelerator, *second, STEPS - STEPS // 2, STEPS // 2)
    assert same_bits(second[0], first[0])


def test_parameters_that_prepare_replaced_are_followed(accelerator):
    """_switch_parameters() is what Accelerate calls where a model's parameters became others."""
    model, optimizer, scheduler = prepared(accelerator)
    train(accelerator, model, optimizer, scheduler, 2)
    other = Net(seed=5)
    with torch.no_grad():
        for new, old in zip(other.parameters(), model.parameters()):
            new.copy_(old)
    optimizer._switch_parameters(dict(zip(model.parameters(), other.parameters())))
    train(accelerator, other, optimizer, scheduler, STEPS - 2, 2)
    assert same_bits(other, plain(STEPS)[0])


def test_unnamed_matrices_are_not_guessed(accelerator):
    model = accelerator.prepare(Net())
    groups = [{"params": [p for p in model.parameters() if p.dim() == rank]} for rank in (2, 1)]
    with pytest.raises(ValueError, match="without a name"):
        accelerator.prepare(gluon.Muon(groups))


@needs_torch(2, 6)
@pytest.mark.skipif(not FORWARD, reason=f"fully_shard() of torch {torch.__version__} runs no model on CPUs")
def test_a_model_that_prepare_shards_trains_saves_and_resumes(tmp_path):
    from accelerate_worker import STEPS, make, train

    worker = [sys.executable, str(pathlib.Path(__file__).parent / "accelerate_worker.py"), str(tmp_path)]
    shared = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    shared.update({"WORLD_SIZE": str(RANKS), "LOCAL_WORLD_SIZE": str(RANKS)})
    environments = [{**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(RANKS)]
    ranks = [subprocess.Popen(worker, env=environment) for environment in environments]
    try:
        assert [rank.wait(timeout=200) for rank in ranks] == [0] * RANKS
    finally:
        for rank in ranks:
            rank.kill()
    model, optimizer = make(seed=0)
    train(model, optimizer, 0, STEPS)
    for rank in range(RANKS):
        results = torch.load(tmp_path / f"rank{rank}.pt")
        assert results["shard"] == [6, 6] and results["loaded"] == 3
        for name, parameter in model.named_parameters():  # the mean of equal gradients is rounded
            assert torch.allclose(results["whole"][name], parameter, rtol=0, atol=1e-9), name
            assert torch.equal(results["resumed"][name], results["whole"][name]), name
