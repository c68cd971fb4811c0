#!/usr/bin/env python3
"""Checks that #includes point only down the order of the folders, and that no files include each other in a circle.

check_layers.py [ROOT]      names every include against the order as file:line and exits 1
check_layers.py --picture   prints the order as docs/design.md shows it
"""

import re
import sys
from pathlib import Path

# From the bottom to the top. A folder may include its own files and every folder of a line below its own.
ORDER = [
    ("gluon/core",),
    ("gluon/kernels",),
    ("gluon/lmo", "gluon/momentum", "gluon/normalize", "gluon/radius", "gluon/distributed", "gluon/theory"),
    ("gluon/geometry",),
    ("gluon/plan",),
    ("gluon/update",),
    ("gluon/smoothness", "gluon/checkpoint"),
    ("gluon/fit", "gluon/testing"),
    ("gluon",),  # gluon.h
    ("lab/data",),
    ("lab/models", "lab/ranks"),
    ("lab/train",),
    ("lab/sweep",),
    ("lab/report",),
    ("lab/reproduce",),
    ("experiments",),
    ("benchmarks",),
    ("cli",),
]
LEVELS = {folder: level for level, folders in enumerate(ORDER) for folder in folders}
SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')


def folder_of(path):
    """The longest folder of the order that holds `path`, or None. "gluon" is that of gluon.h alone."""
    for folder in map(str, Path(path).parents):
        if folder in LEVELS and (folder != "gluon" or Path(path).parent == Path("gluon")):
            return folder
    return None


def includes_of(root):
    """Every include of a project file, as (file, line number, included file)."""
    tops = sorted({folder.split("/")[0] for folder in LEVELS})
    for path in sorted(path for top in tops for path in (root / top).rglob("*") if path.suffix in SUFFIXES):
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            match = INCLUDE.match(line)
            if match and match[1].split("/")[0] in tops:
                yield str(path.relative_to(root)), number, match[1]


def upward_edges(includes):
    for file, number, target in includes:
        here, there = folder_of(file), folder_of(target)
        if here is None or there is None:
            yield f"{file}:{number}: the folder of {target if here else file} has no place in the order"
        elif here != there and LEVELS[there] >= LEVELS[here]:
            yield f"{file}:{number}: {here} includes {target}, but {there} is not below it"


def circle(includes):
    """Files that include each other in a circle, as text; empty when there is none."""
    targets = {}
    for file, _, target in includes:
        targets.setdefault(file, []).append(target)
    state = {}

    def visit(file, path):
        state[file] = "open"
        for target in targets.get(file, []):
            if state.get(target) == "open":
                return " -> ".join([*path[path.index(target) :], target])
            if target not in state and (found := visit(target, [*path, target])):
                return found
        state[file] = "done"
        return ""

    for file in targets:
        if file not in state and (found := visit(file, [file])):
            return f"files include each other: {found}"
    return ""


def picture():
    return "\n".join("  ".join(folders) for folders in reversed(ORDER))


def main(arguments):
    if arguments == ["--picture"]:
        print(picture())
        return 0
    root = Path(arguments[0] if arguments else Path(__file__).parent.parent)
    includes = list(includes_of(root))
    problems = list(upward_edges(includes))
    if found := circle(includes):
        problems.append(found)
    print("\n".join(problems) if problems else f"check_layers: {len(includes)} includes point down")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
