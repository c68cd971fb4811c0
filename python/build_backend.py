"""The build backend of `pip install .` (PEP 517): CMake builds the module, and a wheel is written from it.

It needs only the standard library, so pip downloads nothing: the machine must have cmake, a compiler, torch and
pybind11 (pip's torch contains its headers). GLUON_CMAKE_ARGS adds arguments for CMake.
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
    jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", str(os.cpu_count() or 1))
    environment = _outside()
    if shutil.which("ninja"):
        environment.setdefault("CMAKE_GENERATOR", "Ninja")
    subprocess.run(["cmake", "-S", str(ROOT), "-B", folder, *arguments], check=True, env=environment)
    command = ["cmake", "--build", folder, "--target", "gluon_python", "--parallel", jobs]
    subprocess.run(command, check=True, env=environment)
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
