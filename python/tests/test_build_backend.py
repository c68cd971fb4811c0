"""The build backend's metadata and wheels. make python tests the build itself."""

import base64
import csv
import hashlib
import importlib.util
import os
import pathlib
import subprocess
import sys
import zipfile

import pytest

import gluon

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def backend():
    spec = importlib.util.spec_from_file_location("build_backend", ROOT / "python" / "build_backend.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_metadata_has_the_librarys_version(backend, tmp_path):
    name = backend.prepare_metadata_for_build_wheel(str(tmp_path))
    assert name == f"gluon_lmo-{gluon.__version__}.dist-info"
    assert f"\nVersion: {gluon.__version__}\n" in (tmp_path / name / "METADATA").read_text()


def test_wheel_record_lists_all_files(backend, tmp_path, monkeypatch):
    module = pathlib.Path(gluon._core.__file__)
    monkeypatch.setattr(backend, "_build", lambda folder: module)
    with zipfile.ZipFile(tmp_path / backend.build_wheel(str(tmp_path))) as wheel:
        names = set(wheel.namelist())
        assert {"gluon/__init__.py", "gluon/_core.pyi", "gluon/py.typed", f"gluon/{module.name}"} <= names
        (record,) = [name for name in names if name.endswith("RECORD")]
        rows = list(csv.reader(wheel.read(record).decode().splitlines()))
        assert {row[0] for row in rows} == names
        for name, digest, size in rows:
            data = wheel.read(name)
            expected = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            assert name == record or (digest, size) == (f"sha256={expected}", str(len(data)))


STEP = """
import torch, gluon
weight = torch.nn.Parameter(torch.zeros(2, 2))
weight.grad = torch.eye(2)
gluon.Gluon([("up.weight", weight)], preset="sign_descent", radius=0.5, momentum="none").step()
print(gluon.__file__, weight.tolist())
"""


def test_wheel_steps_in_an_environment_without_a_compiler(backend, tmp_path, monkeypatch):
    monkeypatch.setattr(backend, "_build", lambda folder: pathlib.Path(gluon._core.__file__))
    wheel = tmp_path / backend.build_wheel(str(tmp_path))
    create = [sys.executable, "-m", "venv", "--system-site-packages", "--without-pip", str(tmp_path / "env")]
    subprocess.run(create, check=True)
    python = str(tmp_path / "env" / "bin" / "python")
    alone = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    alone["PATH"] = str(tmp_path / "env" / "bin")
    find = "import sys; from importlib.util import find_spec; sys.exit(not (find_spec('pip') and find_spec('torch')))"
    if subprocess.run([python, "-c", find], env=alone).returncode != 0:
        pytest.skip("pip or torch is not among the system's packages")
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-index", str(wheel)], env=alone, check=True)
    step = subprocess.run([python, "-c", STEP], env=alone, cwd=tmp_path, capture_output=True, text=True)
    assert step.returncode == 0, step.stderr
    where, weight = step.stdout.split(" ", 1)
    assert where.startswith(str(tmp_path / "env"))
    assert weight.strip() == "[[-0.5, 0.0], [0.0, -0.5]]"


@pytest.mark.parametrize("chosen, expected", [(None, "Ninja"), ("Unix Makefiles", "Unix Makefiles")])
def test_build_uses_ninja_where_it_is(backend, monkeypatch, tmp_path, chosen, expected):
    """By default CMake would want make, which a machine with all that docs/install.md lists need not have."""
    (tmp_path / "ninja").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CMAKE_GENERATOR", chosen or "")
    if chosen is None:
        monkeypatch.delenv("CMAKE_GENERATOR")
    generators = []
    monkeypatch.setattr(
        backend.subprocess, "run", lambda command, check, env: generators.append(env["CMAKE_GENERATOR"])
    )
    (tmp_path / "python" / "gluon").mkdir(parents=True)
    (tmp_path / "python" / "gluon" / "_core.so").touch()
    backend._build(str(tmp_path))
    assert generators == [expected] * 2


@pytest.mark.parametrize("folder, kept", [("/tmp/pip-build-env-x/site", False), ("/opt/packages", True)])
def test_build_drops_pips_isolation_and_keeps_the_users_path(backend, monkeypatch, folder, kept):
    monkeypatch.setenv("PYTHONPATH", folder)
    assert ("PYTHONPATH" in backend._outside()) == kept
