"""DistributedDataParallel on the CPU: two processes, every rank computes all layers."""

import os
import pathlib
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from conftest import Net
from ddp_worker import loss_of

import gluon

HERE = pathlib.Path(__file__).parent


@pytest.mark.skipif(not dist.is_available(), reason="this torch has no torch.distributed")
def test_two_ranks_train_as_one_process(tmp_path):
    # The loopback interface: a machine's own name need not resolve.
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen([sys.executable, str(HERE / "ddp_worker.py"), str(rank), "2", str(tmp_path)], env=environment)
        for rank in range(2)
    ]
    try:
        assert [rank.wait(timeout=100) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()
    (first, state), (second, _) = (torch.load(tmp_path / f"rank{rank}.pt") for rank in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)

    alone = Net(seed=0)
    optimizer = gluon.Gluon(alone.named_parameters())
    start = {name: p.detach().clone() for name, p in alone.named_parameters()}
    for step in range(5):
        optimizer.zero_grad()
        loss_of(alone, step, slice(0, 8)).backward()
        optimizer.step()
    # The mean of two halves is the whole mean, rounded otherwise; the sign of an entry near zero may differ.
    for name, parameter in alone.named_parameters():
        moved = (parameter - start[name]).norm()
        assert (parameter - first[name]).norm() < 1e-3 * moved, name
    optimizer.load_state_dict(state)
    assert optimizer.steps_taken == 5
