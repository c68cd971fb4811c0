#!/usr/bin/env python3
"""Measures the seconds until nanogpt-124m reaches the loss that the best peer ends with, on one CUDA GPU.

    benchmarks/time_to_loss.py --data 'train*.bin' --val-data 'val*.bin' [--json FILE]
    benchmarks/time_to_loss.py --data ... --val-data ... --only ours scion --json part1.json      # in parts,
    benchmarks/time_to_loss.py --merge part1.json part2.json                                      # and their table
    benchmarks/time_to_loss.py --small --data ... --val-data ...                                  # a test, on the CPU

Every system trains the same model (peer_systems.py) from the same weights on the same batches, in bfloat16, with the
same schedule, and is validated on the same windows:

    ours      `gluon train`, preset unscion
    muon      torch.optim.Muon on the hidden matrices, without weight decay; fused AdamW on the tied embedding
    adamw     fused AdamW, betas 0.9 and 0.95, weight decay 0.1, clipped at 1
    scion     one matrix at a time, five Jordan steps in bfloat16, momentum 0.9; sign for the embedding
    stacked   the same momentum and radii, matrices stacked by shape, five compiled Polar Express steps in bfloat16

The peers' model is compiled by torch.compile, once per process; a run resets its parameters. Each system trains at all
rates of its grid with seed 0, and at the best one with the further --seeds. Its curve is the mean over those seeds.
With several rows of ours (--ours-flags), ratios are those of the fastest.

Seconds are the host's clock over training steps, from an idle GPU to an idle GPU. Not in them, but listed: validation;
and start-up, that is compiling and warming up: the seconds by which the first steps exceed as many later ones. Starting
the process, reading the data and making the weights are in neither. The log of `gluon train` has the seconds of a step
and its evaluation as one number, so a step with an evaluation counts as the median of the others.
"""
import argparse
import datetime
import functools
import json
import math
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile
import time


def stop(message):
    print(f"time_to_loss: {message}", file=sys.stderr)
    sys.exit(2)


try:
    import torch
except ImportError:
    stop("this python3 has no PyTorch; the peers need PyTorch 2.9 or later with CUDA")

from peer_training import PEERS, WARMUP_STEPS, BadInput, PeerTrainer, read_tokens, train_ours

ROOT = pathlib.Path(__file__).resolve().parent.parent
START = time.monotonic()
FULL = {"model": "nanogpt-124m", "layers": 12, "width": 768, "heads": 6, "vocabulary": 50304, "batch": 32, "seq": 1024,
        "steps": 350, "eval_every": 50, "val_tokens": 2**21}
SMALL = {"model": "nanogpt-tiny", "layers": 2, "width": 64, "heads": 2, "vocabulary": None, "batch": 8, "seq": 64,
         "steps": 20, "eval_every": 5, "val_tokens": 2**12}
# Rates of the hidden matrices, and the embedding's rate over theirs.
GRIDS = {"ours": ([0.009, 0.018, 0.036], 60)}
GRIDS.update((system, (peer.rates, peer.embedding_ratio)) for system, peer in PEERS.items())


def say(text):
    print(f"[{time.monotonic() - START:4.0f} s] {text}", file=sys.stderr, flush=True)


# ---- runs -------------------------------------------------------------------------------------------------------


def rate_text(run):
    return f"{run['rate']:g}" + ("" if run["embedding_rate"] == run["rate"] else f":{run['embedding_rate']:g}")


def name_of(system, options):
    return " ".join(["ours", *options.ours_flags]) if system == "ours" else PEERS[system].name


def attempt(run, train):
    """The run with its results, or with the error: a system that fails does not end the others."""
    say(f"{run['name']}, rate {rate_text(run)}, seed {run['seed']}")
    try:
        return {**run, **train(run["system"], run["rate"], run["embedding_rate"], run["seed"])}
    except Exception as error:
        return {**run, "failed": (str(error).strip().splitlines() or ["no message"])[0]}


def measure(options, settings, tokens, save):
    """All runs; save(runs) after each."""
    runs = []
    save(runs)  # fails before the training if it cannot be written
    trainer = functools.lru_cache(maxsize=None)(lambda: PeerTrainer(settings, *tokens, options.device))

    def train(system, *arguments):
        if system == "ours":
            return train_ours(options, settings, *arguments)
        return trainer().train(PEERS[system], *arguments)

    for system in options.only:
        base = {"system": system, "name": name_of(system, options)}
        missing = "" if system == "ours" else PEERS[system].why_missing(options.device)
        if missing:
            runs.append({**base, "failed": missing})
            continue
        grid = [{**base, "rate": rate, "embedding_rate": other} for rate, other in options.rates[system]]
        for point in grid:
            runs.append(attempt({**point, "seed": 0}, train))
            save(runs)
        best = best_run(runs[-len(grid):])
        for seed in range(1, options.seeds if best else 1):
            runs.append(attempt({**{key: best[key] for key in grid[0]}, "seed": seed}, train))
            save(runs)
    return runs


# ---- results ----------------------------------------------------------------------------------------------------


def best_run(runs):
    """The run of the grid with the lowest loss at its end, or None."""
    done = [run for run in runs if "curve" in run and run["seed"] == 0]
    return min(done, key=lambda run: run["curve"][-1]["val"], default=None)


def means(dictionaries, keys):
    return {key: statistics.fmean([one[key] for one in dictionaries]) for key in keys}


def summary(runs):
    """One system at its best rate, its curve the mean over the seeds; None if it has no run."""
    best = best_run(runs)
    if best is None:
        return None
    grid = [run["rate"] for run in runs if run.get("seed") == 0]
    seeds = [run for run in runs if "curve" in run and rate_text(run) == rate_text(best)]
    curve = [means(points, ["step", "seconds", "val"]) for points in zip(*[run["curve"] for run in seeds])]
    return {"system": best["system"], "name": best["name"], "rate": best["rate"],
            "embedding_rate": best["embedding_rate"], "at_edge": best["rate"] in (min(grid), max(grid)),
            "seeds": len(seeds), "val": curve[-1]["val"],
            **means(seeds, ["seconds", "startup_seconds", "validation_seconds"]), "curve": curve}


def seconds_until(curve, target):
    """When a curve is at or below the target for the first time, linear between evaluations; None if it never is."""
    for before, here in zip([None, *curve], curve):
        if here["val"] <= target:
            share = 1 if before is None else (before["val"] - target) / (before["val"] - here["val"])
            start = 0 if before is None else before["seconds"]
            return start + share * (here["seconds"] - start)
    return None


def make_table(runs):
    """The target's system or None, and the rows of the table."""
    names = dict.fromkeys(run["name"] for run in runs)
    rows = [row for row in (summary([run for run in runs if run["name"] == name]) for name in names) if row]
    target = min((row for row in rows if row["system"] != "ours"), key=lambda row: row["val"], default=None)
    for row in rows:
        row["to_target"] = seconds_until(row["curve"], target["val"]) if target else None
        row["to_target_with_startup"] = None if row["to_target"] is None else row["to_target"] + row["startup_seconds"]
    ours = [row for row in rows if row["system"] == "ours" and row["to_target"] is not None]
    for key, ratio in [("to_target", "ours_over_theirs"), ("to_target_with_startup", "ours_over_theirs_with_startup")]:
        for row in rows:
            known = ours and row["system"] != "ours" and row[key] is not None
            row[ratio] = min(mine[key] for mine in ours) / row[key] if known else None
    return target, rows


def cell(value, width, digits):
    return f"{'-' if value is None else format(value, f'.{digits}f'):>{width}}"


def print_table(settings, target, rows):
    width = max([len(row["name"]) for row in rows] + [6]) + 2
    print(f"{'':<{width + 40}}{'seconds of':<32}{'until the target':<21}with start-up")
    print(f"{'system':<{width}}{'rate':>15} seeds  val loss  ms/step  training  start-up  validation"
          + f"{'seconds':>9}{'ours/theirs':>12}" * 2)
    for row in rows:
        line = f"{row['name']:<{width}}{rate_text(row) + ('*' if row['at_edge'] else ' '):>15}{row['seeds']:>6}"
        line += f"{row['val']:>10.4f}{1e3 * row['seconds'] / settings['steps']:>9.1f}"
        for key, places in [("seconds", 10), ("startup_seconds", 10), ("validation_seconds", 12)]:
            line += cell(row[key], places, 1)
        for key, ratio in [("to_target", "ours_over_theirs"),
                           ("to_target_with_startup", "ours_over_theirs_with_startup")]:
            line += cell(row[key], 9, 1) + cell(row[ratio], 12, 3)
        print(line)
    if target:
        print(f"\ntarget: {target['val']:.4f}, the last validation loss of {target['name']}. The seconds until it are "
              "linear between evaluations; - is never")
    if any(row["at_edge"] for row in rows):
        print("* the best rate is the first or last of its grid")


def print_runs(runs):
    width = max(len(run["name"]) for run in runs) + 2
    print(f"\n{'all runs':<{width}}{'rate':>15}{'seed':>6}  val loss  training")
    for run in runs:
        line = f"{run['name']:<{width}}" + (f"{rate_text(run):>14}{run['seed']:>7}" if "rate" in run else "")
        if "curve" in run:
            print(f"{line}{run['curve'][-1]['val']:>10.4f}{run['seconds']:>10.1f}")
        else:
            print(f"{line}  {'failed' if 'rate' in run else 'not available'}: {run['failed']}")


def merge(files):
    """The settings, the parts and the runs of the JSON files of several parts."""
    settings, parts, runs = None, [], {}
    for file in files:
        try:
            part = json.loads(file.read_text())
        except (OSError, ValueError) as error:
            stop(f"cannot read {file}: {error}")
        if not isinstance(part, dict) or part.get("benchmark") != "time_to_loss":
            stop(f"{file} was not written by --json")
        settings = settings or part["settings"]
        for key, value in part["settings"].items():
            if value != settings.get(key):
                stop(f"{file} has {key} {value}, {files[0]} has {settings.get(key)}: no common table")
        parts += part["parts"]
        for run in part["runs"]:
            key = tuple(run.get(name) for name in ("name", "rate", "embedding_rate", "seed"))
            if "curve" in run and "curve" in runs.get(key, {}):
                stop(f"{file} repeats {run['name']}, rate {rate_text(run)}, seed {run['seed']} of another file")
            if "curve" in run or key not in runs:  # one that failed may have been repeated
                runs[key] = run
    return settings, parts, sorted(runs.values(), key=lambda run: list(GRIDS).index(run["system"]))


# ---- flags ------------------------------------------------------------------------------------------------------


def parse_rates(entries):
    """Of each system the pairs (rate of the hidden matrices, of the embedding)."""
    texts = {system: [f"{rate}" for rate in rates] for system, (rates, _) in GRIDS.items()}
    for entry in entries:
        system, _, rates = entry.partition("=")
        if system not in GRIDS or not rates:
            stop(f"--rates: expected SYSTEM=RATE,... with a system of {', '.join(GRIDS)}, got '{entry}'")
        texts[system] = rates.split(",")
    return {system: [parse_rate(text, GRIDS[system][1]) for text in rates] for system, rates in texts.items()}


def parse_rate(text, ratio):
    hidden, _, embedding = text.partition(":")
    try:
        rate = float(hidden)
        pair = rate, float(embedding) if embedding else float(f"{rate * ratio:.6g}")
    except ValueError:
        pair = (0, 0)
    if not all(0 < value < math.inf for value in pair):
        stop(f"--rates: expected a number > 0, or HIDDEN:EMBEDDING, got '{text}'")
    return pair


def parse_flags():
    parser = argparse.ArgumentParser(description="Measures the seconds until nanogpt-124m reaches the loss that the "
                                     "best peer ends with, on one CUDA GPU")
    parser.add_argument("--data", metavar="PATTERN", help="token shards to train on")
    parser.add_argument("--val-data", metavar="PATTERN", help="token shards to validate on")
    parser.add_argument("--only", nargs="+", choices=list(GRIDS), metavar="SYSTEM", help=", ".join(GRIDS))
    parser.add_argument("--rates", nargs="+", default=[], metavar="SYSTEM=RATES",
                        help="a grid: adamw=0.001,0.002; of the hidden matrices, with the embedding's: ours=0.018:1.08")
    parser.add_argument("--seeds", type=int, default=1, help="seeds of the best rate; the others have seed 0 only")
    for flag, what in [("steps", "training steps"), ("batch", "sequences in a step"), ("seq", "tokens in a sequence"),
                       ("eval-every", "steps between validations"), ("val-tokens", "tokens to validate on")]:
        default = FULL[flag.replace("-", "_")]
        parser.add_argument("--" + flag, type=int, metavar="N", help=f"{what} ({default})")
    parser.add_argument("--cooldown", type=int, metavar="N", help="last steps, in which rates fall linearly to 0 (all)")
    parser.add_argument("--warmup", type=int, metavar="N", help="first steps, in which rates rise linearly (0)")
    parser.add_argument("--program", default=ROOT / "build" / "gluon", type=pathlib.Path)
    parser.add_argument("--ours-flags", default="", metavar="FLAGS",
                        help="more flags of gluon train: --ours-flags='--orthogonalizer polar_express:4'")
    parser.add_argument("--small", action="store_true", help="a tiny model on the CPU, not compiled: tests this script")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="also write all runs to FILE")
    parser.add_argument("--merge", nargs="+", type=pathlib.Path, metavar="FILE",
                        help="train nothing; one table from the JSON files of several parts")
    return parser.parse_args()


def settings_from(options):
    """What all systems share; fills in the model's defaults and refuses what does not fit together."""
    settings = dict(SMALL if options.small else FULL)
    for key in ("steps", "batch", "seq", "eval_every", "val_tokens"):
        if getattr(options, key) is not None:
            settings[key] = getattr(options, key)
    for key, least in [("steps", 2 * WARMUP_STEPS), ("batch", 1), ("seq", 1), ("eval_every", 2)]:
        if settings[key] < least:
            stop(f"--{key.replace('_', '-')} must be >= {least}, got {settings[key]}")
    share = settings["batch"] * settings["seq"]
    if settings["val_tokens"] < 1 or settings["val_tokens"] % share:
        stop(f"--val-tokens must be a multiple of a batch, {share} tokens, got {settings['val_tokens']}")
    warmup = options.warmup or 0
    cooldown = settings["steps"] - warmup if options.cooldown is None else options.cooldown
    if min(warmup, cooldown) < 0 or warmup + cooldown > settings["steps"]:
        stop(f"--warmup and --cooldown must be >= 0 and fit into {settings['steps']} steps, got {warmup} + {cooldown}")
    return {**settings, "warmup": warmup, "cooldown": cooldown}


def check_flags(options):
    if options.merge:
        if options.data or options.val_data or options.only or options.rates or options.small:
            stop("--merge trains nothing: it takes no flag of a training, only --json")
        return
    if not options.data or not options.val_data:
        stop("--data and --val-data are needed: token shards, as gluon data tokenize writes them")
    if options.seeds < 1:
        stop(f"--seeds must be >= 1, got {options.seeds}")
    options.device = "cpu" if options.small else "cuda"
    if not options.small and not torch.cuda.is_available():
        stop(f"no CUDA GPU is available to PyTorch {torch.__version__}; --small runs on the CPU")
    options.only = [system for system in GRIDS if not options.only or system in options.only]  # ours first: idle GPU
    options.rates = parse_rates(options.rates)
    try:
        options.ours_flags = shlex.split(options.ours_flags)
    except ValueError as error:
        stop(f"--ours-flags: {error}")
    options.program = options.program.resolve()
    if "ours" in options.only and not options.program.is_file():
        stop(f"no program {options.program}; run make build")


def read_data(options, settings):
    """The training and the validation tokens; adds them to the settings, with the vocabulary of --small."""
    tokens = []
    for key in ("data", "val_data"):
        tokens.append(read_tokens(getattr(options, key)))
        settings[key] = f"{pathlib.Path(getattr(options, key)).name}, {len(tokens[-1])} tokens"
    largest = max(int(stream.max()) for stream in tokens)
    settings["vocabulary"] = settings["vocabulary"] or largest + 1
    if largest >= settings["vocabulary"]:
        stop(f"the data has token {largest}, the model's vocabulary is {settings['vocabulary']}")
    for flag, stream, least in zip(("--data", "--val-data"), tokens, (settings["seq"], settings["val_tokens"])):
        if len(stream) <= least:
            stop(f"{flag} has {len(stream)} tokens, at least {least + 1} are needed")
    return tokens


def describe_machine(options):
    """This part of the runs: versions and the GPU."""
    version = ""
    if "ours" in options.only:
        done = subprocess.run([str(options.program), "--version"], capture_output=True, text=True)
        version = done.stdout.strip()
    gpu = torch.cuda.get_device_properties(0) if options.device == "cuda" else None
    return {"gluon": version, "torch": torch.__version__, "cuda": torch.version.cuda,
            "gpu": f"{gpu.name} {getattr(gpu, 'uuid', '')}" if gpu else "no GPU",
            "date": datetime.date.today().isoformat(), "systems": options.only}


def run_parts(options):
    """The settings, this part and its runs; --json is written after each run, for a command that is cut off."""
    settings = settings_from(options)
    tokens = read_data(options, settings)
    part = describe_machine(options)
    torch.set_float32_matmul_precision("high")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder  # what an earlier process compiled does not count
        runs = measure(options, settings, tokens, lambda runs: write_json(options.json, settings, [part], runs))
    say("done")
    return settings, [part], runs


def write_json(file, settings, parts, runs):
    if file is None:
        return
    _, table = make_table(runs)
    content = {"benchmark": "time_to_loss", "settings": settings, "parts": parts, "table": table, "runs": runs}
    try:
        file.write_text(json.dumps(content, indent=1) + "\n")
    except OSError as error:
        stop(f"cannot write {file}: {error.strerror}")


def main():
    options = parse_flags()
    check_flags(options)
    try:
        settings, parts, runs = merge(options.merge) if options.merge else run_parts(options)
    except BadInput as error:
        stop(error)
    write_json(options.json, settings, parts, runs)
    target, rows = make_table(runs)
    print_table(settings, target, rows)
    print_runs(runs)
    print("\n" + ", ".join(f"{key} {value}" for key, value in settings.items()))
    for part in parts:
        print(f"{', '.join(part['systems'])}: {part['gpu']}, PyTorch {part['torch']}, "
              f"CUDA {part['cuda']}, Gluon {part['gluon'] or '-'}, {part['date']}")
    if any(run["system"] == "ours" and "failed" in run for run in runs):
        sys.exit(1)


if __name__ == "__main__":
    main()
