#!/usr/bin/env python3
"""check_layers.py passes on this tree and fails, naming file and line, on planted includes."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "scripts" / "check_layers.py"


def run(*arguments):
    done = subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def run_with(file, line):
    """The script's answer for a copy of the sources in which `line` begins `file`."""
    with tempfile.TemporaryDirectory() as folder:
        for top in ("gluon", "lab", "cli", "benchmarks"):
            shutil.copytree(ROOT / top, Path(folder) / top)
        target = Path(folder) / file
        target.parent.mkdir(exist_ok=True)
        target.write_text(line + "\n" + (target.read_text() if target.exists() else ""))
        return run(folder)


def expect(condition, text):
    if not condition:
        sys.exit(f"check_layers_test: {text}")


code, said = run()
expect(code == 0, f"this tree has includes against the order:\n{said}")

for file, line, expected in [
    ("gluon/core/spec.h", '#include "gluon/lmo/norm.h"', "gluon/core/spec.h:1: gluon/core includes gluon/lmo/norm.h"),
    ("gluon/momentum/momentum.h", '#include "gluon/radius/radius.h"', "gluon/momentum/momentum.h:1:"),
    ("gluon/core/check.h", '#include "gluon/core/spec.h"\n#include "gluon/core/check.h"',
     "files include each other: gluon/core/check.h"),
    ("gluon/helpers/all.h", '#include "gluon/core/check.h"', "has no place in the order"),
]:
    code, said = run_with(file, line)
    expect(code == 1 and expected in said, f"{file}: {said}")

_, picture = run("--picture")
expect(picture.strip() in (ROOT / "docs" / "design.md").read_text(), "docs/design.md does not show the order")
print("check_layers_test: passed")
