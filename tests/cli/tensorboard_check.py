#!/usr/bin/env python3
"""Event files of gluon, read by TensorBoard's own reader: tensorboard_check.py PROGRAM

Trains a few steps, then compares what TensorBoard reads with log.csv and smoothness.csv. Says "skipped" where
TensorBoard is not installed; needs no TensorFlow.
"""

import csv
import os
import subprocess
import sys
import tempfile


def accumulated(folder):
    """{tag: {step: value}} by TensorBoard's reader for scripts, over the loader that checks every checksum."""
    from tensorboard.backend.event_processing import event_accumulator as accumulators
    events = accumulators.EventAccumulator(folder, size_guidance={accumulators.SCALARS: 0})
    events.Reload()
    return {tag: {scalar.step: scalar.value for scalar in events.Scalars(tag)} for tag in events.Tags()["scalars"]}


def rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def logged(run):
    """{tag: {step: value}} as log.csv says."""
    tags = {"loss": "loss/training", "val": "loss/validation", "optimizer": "time/optimizer"}
    expected = {}
    for row in rows(os.path.join(run, "log.csv")):
        for column, cell in row.items():
            tag = "radius/" + column[len("radius_"):] if column.startswith("radius_") else tags.get(column)
            if tag and cell:
                expected.setdefault(tag, {})[int(row["step"])] = float(cell)
    return expected


def sampled(run):
    """The same of smoothness.csv."""
    expected = {}
    for row in rows(os.path.join(run, "smoothness.csv")):
        for column in ("smoothness", "gradient", "alignment"):
            if row[column]:
                expected.setdefault(f"{column}/{row['layer']}", {})[int(row["step"])] = float(row[column])
    return expected


def compare(name, found, expected):
    assert sorted(found) == sorted(expected), f"{name}: tags {sorted(found)}, expected {sorted(expected)}"
    for tag, values in expected.items():
        assert sorted(found[tag]) == sorted(values), f"{name}: {tag} at steps {sorted(found[tag])}"
        for step, value in values.items():
            assert abs(found[tag][step] - value) <= 1e-6 * abs(value), f"{name}: {tag} at step {step}"
    print(f"{name}: {len(expected)} tags, {sum(map(len, expected.values()))} scalars")


def main():
    try:
        import tensorboard
    except ImportError:
        print("skipped: tensorboard is not installed for " + sys.executable)
        return
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        run = os.path.join(folder, "run")
        shape = "--layers 1 --width 32 --heads 2 --seq 32 --batch 4 --steps 12 --eval-every 4 --smoothness-every 3"
        board = os.path.join(folder, "board")
        train = ["train", *shape.split(), "--tensorboard", "--out", run]
        for command in (train, ["report", run, "--tensorboard", board]):
            subprocess.run([program, *command], check=True, stdout=subprocess.DEVNULL)
        compare("train --tensorboard", accumulated(run), logged(run))
        compare("report --tensorboard", accumulated(os.path.join(board, "run")), {**logged(run), **sampled(run)})
    print("tensorboard", tensorboard.__version__)


if __name__ == "__main__":
    main()
