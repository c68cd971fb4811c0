"""The build backend of `pip install .` (PEP 517): CMake builds the module, and a wheel is written from it.

It needs only the standard library, so pip downloads nothing: the machine must have cmake, a compiler, torch and
pybind11 (pip's torch contains its headers). GLUON_CMAKE_ARGS adds arguments for CMake.

pip shows what a backend prints only with -v, or when the build has failed. So what is built, how long it will take and
how far it is goes to the terminal, and without one to the output.
"""

import base64
import hashlib
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAME = "gluon_lmo"


def _version():
    text = (ROOT / "CMakeLists.txt").read_text()
    return re.search(r"project\(Gluon VERSION ([0-9.]+)", text).group(1)


def _tag():
    python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    return f"{python}-{python}-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


def _info():
    """The name of the wheel's dist-info folder, and its files."""
    # No "Requires-Dist: torch": the build needs torch anyway, and pip does not see Debian's.
    metadata = (
        f"Metadata-Version: 2.1\nName: gluon-lmo\nVersion: {_version()}\n"
        "Summary: Layer-wise LMO optimizers (Gluon, Muon, Scion and relatives) for PyTorch\n"
        "Requires-Python: >=3.8\nDescription-Content-Type: text/markdown\n\n"
    ).encode() + (ROOT / "README.md").read_bytes()
    wheel = f"Wheel-Version: 1.0\nGenerator: gluon\nRoot-Is-Purelib: false\nTag: {_tag()}\n".encode()
    return f"{NAME}-{_version()}.dist-info", {"METADATA": metadata, "WHEEL": wheel}


def _outside():
    """The environment without pip's build isolation, which hides torch."""
    if "pip-build-env" not in os.environ.get("PYTHONPATH", ""):
        return dict(os.environ)
    return {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONNOUSERSITE")}


# Processor seconds for each file, and for all else (199 in all for 73 files, with GCC 16 and torch 2.14).
_SECONDS_PER_FILE, _SECONDS_BESIDE = 2.4, 20


def _terminal():
    """The terminal if the build has one and runs in its foreground, where writing cannot stop it; else None."""
    try:
        terminal = open("/dev/tty", "w")
        if os.tcgetpgrp(terminal.fileno()) == os.getpgrp():
            return terminal
        terminal.close()
    except (OSError, AttributeError):
        pass
    return None


def _say(text, terminal):
    if terminal is None:
        print(text, flush=True)
        return
    try:
        terminal.write(f"\n{text}\n")  # pip's line is unfinished
        terminal.flush()
    except OSError:
        pass


def _time(seconds):
    minutes = round(seconds / 60)
    return "less than a minute" if minutes == 0 else f"{minutes} minute{'s' * (minutes > 1)}"


def _torch_version(environment):
    """Of the interpreter's torch, which is not imported: that takes seconds. None if there is none."""
    find = "from importlib.util import find_spec; torch = find_spec('torch'); print(torch.origin if torch else '')"
    found = subprocess.run([sys.executable, "-c", find], env=environment, stdout=subprocess.PIPE, text=True).stdout
    about = pathlib.Path(found.strip()).with_name("version.py") if found.strip() else None
    version = about and about.exists() and re.search(r"__version__[^=\n]*= *['\"](.*?)['\"]", about.read_text())
    return version.group(1) if version else None


def _announcement(files, jobs, cores, torch):
    python = f"Python {sys.version_info[0]}.{sys.version_info[1]}"
    seconds = _SECONDS_PER_FILE * files / min(jobs, cores) + _SECONDS_BESIDE
    kernels = "; CUDA kernels, which are built where nvcc is, take longer" if "+cu" in (torch or "") else ""
    return (
        f"gluon-lmo {_version()} for {python} and torch {torch or '(not found)'}: compiles {files} C++ files, {jobs} at "
        f"a time. This takes about {_time(seconds)} on a machine that does nothing else{kernels}."
    )


class _Tenths:
    """Reads the lines of a build by Ninja ("[7/70] Building ...") or make ("[ 10%] Building ...")."""

    def __init__(self):
        self._start, self._said = time.monotonic(), 0

    def read(self, line):
        """What to say at this line: how far the build is, once for every tenth of it; otherwise None."""
        found = re.match(r"\[ *(\d+)(?:/(\d+)|%)\]", line)
        if found is None:
            return None
        done, total = int(found.group(1)), int(found.group(2) or 100)
        tenth = 10 * done // max(total, 1)
        if tenth <= self._said or tenth == 10:
            return None
        self._said = tenth
        left = (time.monotonic() - self._start) * (total - done) / done
        return f"gluon-lmo: {10 * tenth}% built, {_time(left)} left"


def _compile(command, environment, terminal):
    tenths = _Tenths()
    options = {"env": environment, "stdout": subprocess.PIPE, "text": True, "errors": "backslashreplace"}
    with subprocess.Popen(command, **options) as build:
        for line in build.stdout:
            print(line, end="", flush=True)
            text = tenths.read(line)
            if text is not None:
                _say(text, terminal)
    if build.returncode != 0:
        raise subprocess.CalledProcessError(build.returncode, command)


def _build(folder):
    """Builds gluon._core into `folder` and returns its path."""
    arguments = [
        "-DCMAKE_BUILD_TYPE=Release",
        "-DGLUON_PYTHON=ON",
        "-DGLUON_TESTS=OFF",
        "-DGLUON_PROGRAM=OFF",
        "-DGLUON_EXAMPLES=OFF",
        f"-DPython_EXECUTABLE={sys.executable}",
        *shlex.split(os.environ.get("GLUON_CMAKE_ARGS", "")),
    ]
    cores = os.cpu_count() or 1
    jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", str(cores))
    environment = _outside()
    if shutil.which("ninja"):
        environment.setdefault("CMAKE_GENERATOR", "Ninja")
    terminal = _terminal()
    files = sum(1 for source in ("gluon", "python/src") for _ in (ROOT / source).rglob("*.cpp"))
    _say(_announcement(files, int(jobs), cores, _torch_version(environment)), terminal)
    subprocess.run(["cmake", "-S", str(ROOT), "-B", folder, *arguments], check=True, env=environment)
    _compile(["cmake", "--build", folder, "--target", "gluon_python", "--parallel", jobs], environment, terminal)
    if terminal is not None:
        terminal.close()
    return next((pathlib.Path(folder) / "python" / "gluon").glob("_core*.so"))


def _write_wheel(path, files):
    """`files` maps names in the wheel to bytes."""
    info, about = _info()
    files = {**files, **{f"{info}/{name}": data for name, data in about.items()}}
    files[f"{info}/licenses/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    record = ""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record += f"{name},sha256={digest},{len(data)}\n"
            wheel.writestr(name, data)
        wheel.writestr(f"{info}/RECORD", record + f"{info}/RECORD,,\n")


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    info, files = _info()
    folder = pathlib.Path(metadata_directory) / info
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return info


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    with tempfile.TemporaryDirectory() as folder:
        # GLUON_BUILD_DIR keeps the build folder for the next build.
        module = _build(os.environ.get("GLUON_BUILD_DIR", folder))
        package = [p for p in sorted((ROOT / "python" / "gluon").iterdir()) if p.suffix in (".py", ".pyi", ".typed")]
        files = {f"gluon/{path.name}": path.read_bytes() for path in [*package, module]}
    name = f"{NAME}-{_version()}-{_tag()}.whl"
    _write_wheel(pathlib.Path(wheel_directory) / name, files)
    return name


def build_sdist(sdist_directory, config_settings=None):
    """The files that git tracks."""
    name = f"{NAME}-{_version()}"
    archive = pathlib.Path(sdist_directory) / f"{name}.tar.gz"
    command = ["git", "archive", "--format=tar.gz", f"--prefix={name}/", "-o", str(archive), "HEAD"]
    subprocess.run(command, cwd=ROOT, check=True)
    return archive.name
