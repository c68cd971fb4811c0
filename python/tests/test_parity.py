"""C++ and Python give the same bits after 20 steps with the same model, data and seed."""

import os
import subprocess

import pytest
import torch
from conftest import Net

import gluon

PROGRAM = os.environ.get("GLUON_PARITY_PROGRAM")


@pytest.mark.skipif(PROGRAM is None, reason="GLUON_PARITY_PROGRAM is not set to the C++ program")
@pytest.mark.parametrize(
    "preset", ["unscion", "scion", "sphere", "muon", "normuon", "sign_descent", "normalized_descent", "sgd", "adamw"]
)
def test_same_bits_as_the_cpp_program(preset, tmp_path):
    subprocess.run([PROGRAM, preset, str(tmp_path / "bytes")], check=True)
    model = Net(seed=0)
    steps = 20 if preset == "sphere" else None
    optimizer = gluon.Gluon(model.named_parameters(), preset=preset, schedule="linear(20,10)", steps=steps)
    for step in range(20):
        tokens = ((torch.arange(40) * 7 + step * 3) % 11).view(8, 5)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
    ours = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    assert ours == (tmp_path / "bytes").read_bytes()
