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
import torch

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


def write_cmake(folder, fails=False):
    """In the place of cmake: notes the generator, prints what Ninja would, makes the module."""
    lines = "".join(f'echo "[{i}/20] Building {i}.o"; ' for i in range(1, 21)) + ("exit 3; " if fails else "")
    script = f"""#!/bin/sh
echo "$CMAKE_GENERATOR" >> {folder}/generators
if [ "$1" = --build ]; then {lines}fi
"""
    (folder / "cmake").write_text(script)
    (folder / "cmake").chmod(0o755)
    (folder / "python" / "gluon").mkdir(parents=True)
    (folder / "python" / "gluon" / "_core.so").touch()


@pytest.mark.parametrize("chosen, expected", [(None, "Ninja"), ("Unix Makefiles", "Unix Makefiles")])
def test_build_uses_ninja_where_it_is(backend, monkeypatch, tmp_path, chosen, expected):
    """By default CMake would want make, which a machine with all that docs/install.md lists need not have."""
    (tmp_path / "ninja").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CMAKE_GENERATOR", chosen or "")
    if chosen is None:
        monkeypatch.delenv("CMAKE_GENERATOR")
    write_cmake(tmp_path)
    backend._build(str(tmp_path))
    assert (tmp_path / "generators").read_text().splitlines() == [expected] * 2


@pytest.mark.parametrize("folder, kept", [("/tmp/pip-build-env-x/site", False), ("/opt/packages", True)])
def test_build_drops_pips_isolation_and_keeps_the_users_path(backend, monkeypatch, folder, kept):
    monkeypatch.setenv("PYTHONPATH", folder)
    assert ("PYTHONPATH" in backend._outside()) == kept


def test_announcement_has_what_is_built_and_how_long_it_takes(backend):
    text = backend._announcement(70, 2, 4, "2.14.0")
    python = ".".join(map(str, sys.version_info[:2]))
    assert text.startswith(f"gluon-lmo {gluon.__version__} for Python {python} and torch 2.14.0: compiles 70 C++ files, 2")
    assert "about 2 minutes" in text and "CUDA" not in text
    assert "about 3 minutes" in backend._announcement(70, 8, 1, "2.14.0")
    assert "about 1 minute " in backend._announcement(70, 8, 8, None)
    assert "torch (not found)" in backend._announcement(70, 8, 8, None)
    assert "CUDA kernels, which are built where nvcc is, take longer" in backend._announcement(70, 2, 4, "2.11.0+cu128")


def test_torch_is_found_without_being_imported(backend, tmp_path):
    assert backend._torch_version(dict(os.environ)) == torch.__version__
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise ImportError")
    assert backend._torch_version({**os.environ, "PYTHONPATH": str(tmp_path)}) is None
    (tmp_path / "torch" / "version.py").write_text("from typing import Optional\n__version__: str = '2.99.1+cu999'\n")
    assert backend._torch_version({**os.environ, "PYTHONPATH": str(tmp_path)}) == "2.99.1+cu999"


NINJA = [f"[{i}/40] Building CXX object {i}.o\n" for i in range(1, 41)]
MAKE = [f"[{i:3d}%] Building CXX object {i}.o\n" for i in range(1, 101)]


@pytest.mark.parametrize("lines", [NINJA, MAKE], ids=["ninja", "make"])
def test_every_tenth_is_said_once_with_the_time_left(backend, monkeypatch, lines):
    now = [0.0]
    monkeypatch.setattr(backend.time, "monotonic", lambda: now[0])
    tenths, said = backend._Tenths(), []
    for line in lines:
        now[0] += 600 / len(lines)
        said += [tenths.read("ninja: a warning [7/8]\n"), tenths.read(line)]
    texts = [text for text in said if text is not None]
    assert len(texts) == 9
    assert texts[0] == "gluon-lmo: 10% built, 9 minutes left"
    assert texts[-1] == "gluon-lmo: 90% built, 1 minute left"


def test_a_build_of_few_steps_says_fewer_tenths(backend):
    tenths = backend._Tenths()
    assert [tenths.read(f"[{i}/3] x") is not None for i in (1, 2, 3)] == [True, True, False]
    assert "30%" in backend._Tenths().read("[1/3] x")
    assert backend._Tenths().read("[0/2] Re-checking globbed directories...") is None


BUILD = """
import fcntl, sys, termios
sys.path.insert(0, sys.argv[1])
if sys.argv[3] == "terminal":
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
import build_backend
build_backend._build(sys.argv[2])
"""


@pytest.mark.parametrize("where", ["terminal", "output"])
def test_progress_is_for_the_terminal_if_there_is_one(tmp_path, where):
    write_cmake(tmp_path)
    try:
        master, slave = os.openpty()
    except OSError as error:
        pytest.skip(f"no pseudo-terminals: {error}")
    alone = {**os.environ, "PATH": str(tmp_path)}
    command = [sys.executable, "-c", BUILD, str(ROOT / "python"), str(tmp_path), where]
    ended = subprocess.run(command, env=alone, stdin=slave, capture_output=True, text=True, start_new_session=True)
    os.set_blocking(master, False)
    try:
        shown = os.read(master, 1 << 16).decode()
    except BlockingIOError:
        shown = ""
    os.close(master)
    os.close(slave)
    assert ended.returncode == 0, ended.stderr
    assert "[20/20] Building 20.o" in ended.stdout  # for pip -v, and for pip's report of a failure
    seen, unseen = (shown, ended.stdout) if where == "terminal" else (ended.stdout, shown)
    assert "C++ files" in seen and seen.count("% built, less than a minute left") == 9
    assert "gluon-lmo" not in unseen


def test_a_failing_build_fails(backend, monkeypatch, tmp_path):
    write_cmake(tmp_path, fails=True)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(subprocess.CalledProcessError, match="exit status 3"):
        backend._build(str(tmp_path))
