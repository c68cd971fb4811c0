#!/usr/bin/env python3
"""Compares the optimizer's time in a training step on several ranks with that on one rank.

    benchmarks/ranks_step.py [--program build/gluon] [--ranks 2] [--width 512] [--repeats 3] [--at-most 0.6]

Trains a wide nanogpt-tiny on few tokens, so that the optimizer dominates, with one thread and the same number of
examples per rank. The optimizer's time starts when the gradients are at their owners and ends when all ranks have the
new parameters. Runs alternate; the result is the least median of each kind, because disturbances only add time. With
--at-most R the exit status is 1 if the optimizer takes more than R times as long as on one rank.
"""

import argparse
import csv
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

EXAMPLES = 2  # per rank, 32 tokens each
STEPS = 14  # the first two warm up


def train(program, ranks, width):
    """Median seconds of a step and of its optimizer."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        model = ["--layers", "2", "--width", str(width), "--heads", "8", "--seq", "32"]
        how = ["--batch", str(EXAMPLES * ranks), "--steps", str(STEPS), "--eval-every", str(STEPS), "--parts", "1"]
        done = subprocess.run(
            [program, "train", "--ranks", str(ranks), *model, *how, "--out", run],
            env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
        )
        if done.returncode != 0:
            sys.exit(f"ranks_step: {done.stderr.strip() or done.stdout.strip()}")
        with open(run / "log.csv", newline="") as file:
            rows = list(csv.DictReader(file))
    ends = [float(row["seconds"]) for row in rows]
    steps = [end - start for start, end in zip(ends, ends[1:])][1:-1]  # the last one evaluates
    shares = [float(row["optimizer"]) for row in rows][2:-1]
    return statistics.median(steps), statistics.median(step * share for step, share in zip(steps, shares))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/gluon")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--at-most", type=float)
    options = parser.parse_args()
    best = {}
    for _ in range(options.repeats):
        for ranks in (1, options.ranks):
            step, optimizer = train(options.program, ranks, options.width)
            print(f"{ranks} ranks: step {1e3 * step:.0f} ms, optimizer {1e3 * optimizer:.0f} ms", flush=True)
            best[ranks] = min(best.get(ranks, optimizer), optimizer)
    ratio = best[options.ranks] / best[1]
    bound = "" if options.at_most is None else f", at most {options.at_most:g}"
    print(f"optimizer: {1e3 * best[1]:.0f} ms on 1 rank, {1e3 * best[options.ranks]:.0f} ms on {options.ranks},"
          f" ratio {ratio:.2f} (even shares: {1 / options.ranks:.2f}{bound})")
    return int(options.at_most is not None and ratio > options.at_most)


if __name__ == "__main__":
    sys.exit(main())
