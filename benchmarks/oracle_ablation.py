#!/usr/bin/env python3
"""Trains the same model with several orthogonalizers and seeds, and prints what their exactness costs in loss.

    benchmarks/oracle_ablation.py --results FILE [--orthogonalizers A,B] [--seeds 0,1,2] [--radius R]... [--jobs N] -- FLAGS

FLAGS go to `gluon train`. Every finished run is appended to FILE as a line of JSON, and a run that FILE has is not
repeated: an interrupted ablation goes on where it stopped. With --table nothing is trained. docs/orthogonalization.md
has the commands and the tables.

The loss is the mean training loss of the last 40 steps, beside it the last validation loss. A row's difference is to
the first orthogonalizer, seed by seed; `spread` is the standard deviation of the first one's losses over the seeds.
"""
import argparse
import concurrent.futures
import csv
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
LAST = 40


def run(options, orthogonalizer, seed, radius):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "run"
        command = [options.program, "train", *options.flags, "--orthogonalizer", orthogonalizer, "--seed", seed,
                   "--out", out]
        if radius:
            command += ["--radius", radius]
        done = subprocess.run([*map(str, command)], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{orthogonalizer}, seed {seed}: {done.stderr.strip() or done.stdout.strip()}")
        with open(out / "log.csv") as file:
            rows = list(csv.DictReader(file))
    losses = [float(row["loss"]) for row in rows[-LAST:]]
    validation = [float(row["val"]) for row in rows if row["val"]]
    accuracy = [line.split()[-2] for line in done.stdout.splitlines() if "test accuracy" in line]
    return {"orthogonalizer": orthogonalizer, "seed": seed, "radius": radius, "flags": options.flags,
            "loss": statistics.mean(losses), "validation": validation[-1], "seconds": float(rows[-1]["seconds"]),
            **({"accuracy": float(accuracy[0])} if accuracy else {})}


def key(row):
    return row["orthogonalizer"], row["seed"], row["radius"], tuple(row["flags"])


def run_missing(options, known):
    """Runs what `known` does not have; seeds come first, so that every orthogonalizer has one soon."""
    missing = [(name, seed, radius) for seed in options.seeds for radius in options.radius
               for name in options.orthogonalizers if (name, seed, radius, tuple(options.flags)) not in known]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for row in pool.map(lambda one: run(options, *one), missing):
            with open(options.results, "a") as file:
                file.write(json.dumps(row) + "\n")
            print(f"{row['orthogonalizer']:<28} seed {row['seed']}  radius {row['radius'] or 'default'}  loss "
                  f"{row['loss']:.4f}  validation {row['validation']:.4f}  {row['seconds']:.1f} s", flush=True)


def print_table(title, rows, names):
    print(f"\n{title}\n{'':<28}{'loss':>9}{'difference':>12}{'spread':>9}{'validation':>12}{'difference':>12}{'spread':>9}"
          f"{'accuracy':>10}{'seeds':>7}")
    first = {row["seed"]: row for row in rows if row["orthogonalizer"] == names[0]}
    for name in names:
        own = [row for row in rows if row["orthogonalizer"] == name]
        if not own:
            continue
        line = f"{name:<28}"
        for what in ("loss", "validation"):
            values = [row[what] for row in own]
            differences = [row[what] - first[row["seed"]][what] for row in own if row["seed"] in first]
            difference = f"{statistics.mean(differences):+.4f}" if differences else ""
            spread = f"{statistics.stdev(values):.4f}" if len(values) > 1 else ""
            line += f"{statistics.mean(values):>{9 if what == 'loss' else 12}.4f}{difference:>12}{spread:>9}"
        accuracy = [row["accuracy"] for row in own if "accuracy" in row]
        print(f"{line}{f'{statistics.mean(accuracy):.2f} %' if accuracy else '':>10}{len(own):>7}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/gluon")
    parser.add_argument("--results", type=pathlib.Path, required=True)
    parser.add_argument("--orthogonalizers", default="polar_express:8,polar_squares:9,polar_squares:8,polar_express:5,"
                                                     "polar_express:4,bfloat16:newton_schulz:5")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--radius", action="append", help="of gluon train; several give several tables")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--table", action="store_true", help="only print what --results has")
    parser.add_argument("flags", nargs="*", help="flags of gluon train, after --")
    options = parser.parse_args()
    options.orthogonalizers = options.orthogonalizers.split(",")
    options.seeds = [int(seed) for seed in options.seeds.split(",")]
    options.radius = options.radius or [""]

    lines = options.results.read_text().splitlines() if options.results.exists() else []
    rows = [json.loads(line) for line in lines]
    if not options.table:
        try:
            run_missing(options, {key(row) for row in rows})
        except RuntimeError as error:
            sys.exit(f"oracle_ablation: {error}")
        rows = [json.loads(line) for line in options.results.read_text().splitlines()]
    for flags, radius in sorted({(tuple(row["flags"]), row["radius"]) for row in rows}):
        same = [row for row in rows if tuple(row["flags"]) == flags and row["radius"] == radius]
        print_table(f"{' '.join(flags)}, radius {radius or 'default'}", same, options.orthogonalizers)


if __name__ == "__main__":
    main()
