"""The programs in examples/python/ and the Python code in the documentation run and learn."""

import functools
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from conftest import TORCH, Net, needs_torch
from fsdp_worker import FORWARD

import gluon

ROOT = pathlib.Path(__file__).parents[2]


def run(script, *arguments):
    command = [sys.executable, str(ROOT / "examples" / "python" / script), *map(str, arguments)]
    return subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)


def output_of(script, *arguments):
    done = run(script, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def losses(text):
    return [float(loss) for loss in re.findall(r"loss ([0-9.]+)", text)]


def test_train_gpt(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("all work and no play makes jack a dull boy. " * 50)
    output = output_of("train_gpt.py", text, "--steps", 8, "--device", "cpu")
    assert "split qkv" in output
    first, *_, last = losses(output)
    assert last < first - 1


def test_train_gpt_without_a_text_reads_the_sources():
    assert losses(output_of("train_gpt.py", "--steps", 1, "--device", "cpu"))[0] > 4


def test_train_gpt_away_from_the_sources_needs_a_text(tmp_path):
    copy = tmp_path / "train_gpt.py"
    shutil.copy(ROOT / "examples" / "python" / "train_gpt.py", copy)
    done = run(copy, "--steps", 1)
    assert done.returncode == 2 and "name a TEXT" in done.stderr


def fake_cifar(folder, images):
    """Images of class k have one gray level, with noise."""
    generator = torch.Generator().manual_seed(0)
    for name in ("data_batch_1.bin", "test_batch.bin"):
        labels = torch.arange(images) % 10
        noise = torch.randint(-10, 11, (images, 3072), generator=generator)
        rows = torch.cat([labels[:, None], (20 + 24 * labels[:, None] + noise)], 1).to(torch.uint8)
        (folder / name).write_bytes(rows.numpy().tobytes())


def test_train_cifar(tmp_path):
    fake_cifar(tmp_path, 200)
    output = output_of("train_cifar.py", tmp_path, "--epochs", 3, "--batch", 20, "--device", "cpu")
    assert "conv" in output and "head" in output
    first, *_, last = losses(output)
    assert last < first
    assert float(re.findall(r"test ([0-9.]+) %", output)[-1]) > 30


def test_train_cifar_names_missing_files(tmp_path):
    done = run("train_cifar.py", tmp_path)
    assert done.returncode == 1 and "no data_batch_*.bin or data_batch_*.bin.xz" in done.stderr


def test_transformers_names():
    output = output_of("transformers_names.py")
    first = output.split("\n\n")[0].splitlines()
    counts = {line.split()[0]: int(line.split()[-2]) for line in first[1:]}
    assert counts == {"hidden": 14, "embedding": 1, "head": 1, "*": 10}
    assert losses(output)[-1] < 0.5 * losses(output)[0]


def test_train_gpt2_trainer(tmp_path):
    """In two halves, the second of which begins where the first one was saved."""
    pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("accelerate", reason="transformers' Trainer needs accelerate")
    text = tmp_path / "text.txt"
    text.write_text("all work and no play makes jack a dull boy. " * 50)
    options = [text, "--steps", 8, "--out", tmp_path / "out", "--width", 32, "--save-every", 4]
    whole = output_of("train_gpt2_trainer.py", *options)
    assert "hidden" in whole and "adamw" in whole
    first, *_, last = losses(whole)
    assert last < first - 0.5
    resumed = output_of("train_gpt2_trainer.py", *options, "--resume", tmp_path / "out" / "checkpoint-4")
    assert losses(resumed) == losses(whole)[4:]


@needs_torch(2, 5)
@pytest.mark.skipif(not FORWARD, reason=f"fully_shard() of torch {torch.__version__} runs no model on CPUs")
def test_fsdp2(tmp_path):
    environment = {
        **os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "CUDA_VISIBLE_DEVICES": "",
        # Its ranks meet in a file: for a port, torchrun wants libuv, which not every torch has.
        "USE_LIBUV": "0", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }  # fmt: skip
    meeting = ["--rdzv-backend=c10d", "--rdzv-conf=store_type=file", f"--rdzv-endpoint={tmp_path}/meeting"]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=4", "--local-addr=127.0.0.1", *meeting]
    script = [str(ROOT / "examples" / "python" / "fsdp2.py"), str(tmp_path / "saved")]
    done = subprocess.run(command + script, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    output = done.stdout
    assert "adamw" in output and "spectral" in output
    steps = [int(step) for step in re.findall(r"step (\d+)", output)]
    assert steps == [0, 5, 10, 15, 19, 20, 25, 29]
    first, *_, before, after, _, last = losses(output)
    assert last < before < first - 0.5 and abs(after - before) < 0.5


def python_blocks(path):
    return re.findall(r"^```python\n(.*?)^```$", path.read_text(), re.DOTALL | re.MULTILINE)


def small_model():
    linear = functools.partial(torch.nn.Linear, bias=False)
    blocks = torch.nn.Sequential(linear(6, 12), linear(12, 6))
    return torch.nn.ModuleDict({"embed": torch.nn.Embedding(11, 6), "blocks": blocks, "lm_head": linear(6, 11)})


class Scion(gluon.Scion):
    def init(self):
        self.initialize()


def states_of_torch(model):
    """What the guide's two optimizers would have saved, and their parameters."""
    hidden, tables = list(model.blocks.parameters()), [model.embed.weight, model.lm_head.weight]
    adamw = torch.optim.AdamW([dict(params=tables), dict(params=[])])
    for parameter in tables:
        parameter.grad = torch.ones_like(parameter)
    adamw.step()
    state = {number: {"momentum_buffer": torch.ones_like(p)} for number, p in enumerate(hidden)}
    muon = {"state": state, "param_groups": [{"lr": 1e-3, "params": [0, 1]}]}
    return {"muon_state": muon, "adamw_state": adamw.state_dict(), "hidden": hidden, "tables": tables, "vectors": []}


MIGRATION = python_blocks(ROOT / "docs" / "migration.md")


@pytest.fixture
def one_rank(tmp_path, monkeypatch):
    """A process group with one rank, for the examples that need one."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    if not dist.is_available():
        pytest.skip("this torch has no torch.distributed")
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("index", range(len(MIGRATION)))
def test_migration_guide(index, one_rank):
    """The new code, and the old code with our classes under the old names."""
    code = MIGRATION[index]
    if "torch.optim.Muon" in code and TORCH < (2, 9):
        pytest.skip(f"torch.optim.Muon needs torch 2.9, this is {torch.__version__}")
    model = small_model()
    names = {"torch": torch, "gluon": gluon, "model": model, "MuonWithAuxAdam": gluon.Muon, "Scion": Scion}
    names.update(states_of_torch(model))
    exec(code, names)
    if "optimizer" not in names:
        return
    start = model.blocks[0].weight.detach().clone()
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    names["optimizer"].step()
    assert not torch.equal(model.blocks[0].weight, start)
    report = names["optimizer"].routing_report()
    assert "spectral" in report and ("adamw" in report) == ("Muon" in code)


def test_readme(tmp_path, monkeypatch):
    (code,) = python_blocks(ROOT / "README.md")
    monkeypatch.chdir(tmp_path)
    model = Net()
    first = model.loss(0).item()
    exec(code, {"torch": torch, "model": model, "loader": range(3), "loss": lambda model, batch: model.loss(0)})
    assert model.loss(0).item() < first
    assert torch.load(tmp_path / "optimizer.pt")["gluon"]["step"] == 3
