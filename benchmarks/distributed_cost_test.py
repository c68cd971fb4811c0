"""The simulator of distributed_cost.py against ranks on this machine (--measure), and what must hold of it (--check).

--measure trains a small GPT, wide enough for the optimizer to matter, with 1, 2 and 4 ranks of one thread, all on this
machine's cores, and predicts the step of 2 and 4 from:

    one rank                           seconds of forward and backward pass, and of the optimizer
    as many single ones as cores       how much slower a core is when all are busy
    one and two ranks of sign descent  which hardly computes: seconds that an exchange costs

Owners and their loads are the simulator's. Links and GPUs are not checked by this: on a CPU an exchange is work for the
cores that compute, so nothing is hidden behind anything, and times add up.

Other programs disturb this more than anything that is measured. A run starts when the machine is quiet, and only steps
count beside which others used less than 0.15 cores; where there are too few in time, the quietest do. Of each kind's
runs the one with the least median counts: whatever disturbs makes it longer.
"""

import csv
import dataclasses
import itertools
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from distributed_cost import (MODELS, WAYS, Machine, assign_owners, gpt, gradient_buckets, last_useful_ranks,
                              parameter_messages, simulate)

QUIET = 0.15  # cores that others may use during a step that counts
ENOUGH = 3  # such steps in a run that counts, and such runs
STEPS = 11  # of a run
SMALL = {"layers": 2, "width": 384, "heads": 6, "seq": 64, "batch": 12, "parts": 12}  # 1, 2 and 4 ranks share evenly


def busy_seconds():
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    used = [int(x) for i, x in enumerate(fields) if i not in (3, 4)]  # idle, iowait
    return sum(used) / os.sysconf("SC_CLK_TCK")


def wait_for_quiet(deadline):
    used = QUIET
    while used >= QUIET and time.monotonic() < deadline:
        before = busy_seconds()
        time.sleep(0.5)
        used = 2 * (busy_seconds() - before)


def used_by(processes):
    """Seconds of cores that these processes have used; those that have ended count as nothing."""
    used = 0
    for process in processes:
        try:
            used += sum(map(int, Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]))
        except OSError:
            pass
    return used / os.sysconf("SC_CLK_TCK")


def start(program, folder, ranks, preset, copies):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    processes = []
    for copy, rank in itertools.product(range(copies), range(ranks)):
        place = {"RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1",
                 "MASTER_PORT": port}
        command = [program, "train", "--threads", "1", "--ranks", str(ranks), "--data", f"{folder}/text", "--preset",
                   preset, f"--steps={STEPS}", "--eval-every=100000", "--save-every=100000", "--out",
                   f"{folder}/run{copy}", *[f"--{key}={value}" for key, value in SMALL.items()]]
        processes.append(subprocess.Popen(command, env=os.environ | (place if ranks > 1 else {}),
                                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
    return processes


def train(program, ranks, preset, copies):
    """[(seconds, of these the optimizer's, cores that others used)] of each step. Copies are runs at once that know
    nothing of each other."""
    with tempfile.TemporaryDirectory() as folder:
        Path(f"{folder}/text").write_bytes(bytes(32 + (i * i // 7) % 90 for i in range(60000)))
        processes = start(program, folder, ranks, preset, copies)
        log, marks = Path(f"{folder}/run0/log.csv"), []  # marks: when a line of the log came, and what was used by then
        while any(process.poll() is None for process in processes):
            lines = log.read_bytes().count(b"\n") if log.exists() else 0
            while len(marks) < lines:
                marks.append((time.monotonic(), busy_seconds() - used_by(processes)))
            time.sleep(0.02)
        for process in processes:
            if process.returncode != 0:
                sys.exit(f"distributed_cost: the training on {ranks} ranks failed: {process.communicate()[1].strip()}")
        rows = [(float(row["seconds"]), float(row["optimizer"])) for row in csv.DictReader(log.open())]
    result = []
    for i in range(3, min(len(rows), len(marks) - 1)):  # line 0 is the header; the first steps make their memory
        seconds = rows[i][0] - rows[i - 1][0]
        others = (marks[i + 1][1] - marks[i][1]) / max(1e-3, marks[i + 1][0] - marks[i][0])
        result.append((seconds, seconds * rows[i][1], max(0.0, others)))
    return result


@dataclasses.dataclass
class Cores:
    """What ranks on one machine share. Times of one core alone, in seconds."""
    cores: int
    crowding: float  # each is so much slower when all are busy
    compute: float  # forward and backward pass of the whole batch
    flop: float  # of an orthogonalization
    entry: float  # of the rest of the optimizer
    exchange: float = 0.0  # gradients (8 bytes an entry) and parameters (4), from one rank to another
    late: float = 0.0  # share of it that the optimizer has to wait for


def on_cores(layers, speed, ranks):
    """(step, its optimizer with what it waits for) where an exchange is work for the same cores: nothing is hidden."""
    busy = min(ranks, speed.cores)
    slow = speed.crowding if ranks >= speed.cores else 1.0
    owners = assign_owners([layer.step_cost() for layer in layers], ranks)
    loads = [0.0] * ranks
    for layer, owner in zip(layers, owners):
        loads[owner] += layer.polar_flops() * speed.flop + layer.entries * speed.entry
    optimizer = slow * max(max(loads), sum(loads) / busy)
    exchange = (ranks - 1) * speed.exchange / busy
    return slow * speed.compute / busy + optimizer + exchange, optimizer + speed.late * exchange


def measure(options):
    cores = len(os.sched_getaffinity(0))
    wanted = {"alone": (1, "unscion", 1), "crowd": (1, "unscion", cores), "signs": (1, "sign_descent", 1),
              "exchange": (2, "sign_descent", 1), "two": (2, "unscion", 1), "four": (4, "unscion", 1)}
    seen = {key: [] for key in wanted}
    quiet = lambda run: [step for step in run if step[2] < QUIET]
    missing = lambda: [key for key in wanted if sum(len(quiet(run)) >= ENOUGH for run in seen[key]) < ENOUGH]
    deadline = time.monotonic() + 60 * options.minutes
    while missing() and (time.monotonic() < deadline or not all(seen.values())):
        for key in missing():
            wait_for_quiet(deadline)
            seen[key].append(train(options.program, *wanted[key]))
    best = {}
    for key, runs in seen.items():
        counted = [quiet(run) for run in runs if len(quiet(run)) >= ENOUGH]
        taken = counted or [sorted(run, key=lambda step: step[2])[:ENOUGH] for run in runs]
        best[key] = min([statistics.median(step[i] for step in run) for i in range(3)] for run in taken)
        print(f"{key:9} {wanted[key][0]} ranks, {wanted[key][1]:12}: step {1e3 * best[key][0]:4.0f} ms, optimizer "
              f"{1e3 * best[key][1]:4.0f} ms; {len(counted)} of {len(runs)} runs were quiet, "
              f"others used {best[key][2]:.2f} cores")

    layers = gpt(SMALL["layers"], SMALL["width"], 256)
    alone, crowd, signs, exchange = (best[key] for key in ("alone", "crowd", "signs", "exchange"))
    flops = sum(layer.polar_flops() for layer in layers)
    speed = Cores(cores, max(1.0, crowd[0] / alone[0]), alone[0] - alone[1], (alone[1] - signs[1]) / flops,
                  signs[1] / sum(layer.entries for layer in layers))
    # What two ranks of sign descent take beyond their work is one exchange, shared by their cores.
    step, optimizer = on_cores([dataclasses.replace(layer, kind="tied") for layer in layers],
                               dataclasses.replace(speed, compute=signs[0] - signs[1]), 2)
    speed.exchange = min(2, cores) * max(0.0, exchange[0] - step)
    speed.late = min(1.0, max(0.0, exchange[1] - optimizer) / max(1e-9, exchange[0] - step))
    print(f"\n{cores} cores, {speed.crowding:.2f} times slower when all are busy; an exchange takes a core "
          f"{1e3 * speed.exchange:.0f} ms, {speed.late:.0%} of it after the backward pass\n")
    print("| ranks | step predicted | measured | ratio | optimizer predicted | measured | ratio |\n"
          "|---|---|---|---|---|---|---|")
    outside = 0
    for ranks, key in ((1, "alone"), (2, "two"), (4, "four")):
        cells = []
        for seconds, measured in zip(on_cores(layers, speed, ranks), best[key]):
            cells.append(f"{1e3 * seconds:.0f} ms | {1e3 * measured:.0f} ms | {seconds / measured:.2f}")
            outside += not 1 / options.within <= seconds / measured <= options.within
        print(f"| {ranks} | {' | '.join(cells)} |")
    print(f"\n{outside} of 6 ratios outside 1/{options.within:g}..{options.within:g}")
    return int(outside > 0)


def check():
    """What must hold of the simulator, whatever the machine."""
    assert assign_owners([3, 1, 2, 2], 2) == [1, 1, 0, 0]
    nano, seven = MODELS["nanogpt-124m"][0], MODELS["7b"][0]
    assert sum(layer.entries for layer in nano) == 123_568_128
    assert round(sum(layer.entries for layer in seven) / 1e6) == 6738
    assert 160 < last_useful_ranks(seven, Machine()) <= len(seven)  # 160: the large ones alone, the others in pairs
    for layers, way in itertools.product((nano, seven), WAYS):
        alone = simulate(layers, Machine(), 1, 8192, way)
        assert alone["sent"] == 0 and alone["exposed"] == 0
        for ranks in (2, 8, 64):
            row = simulate(layers, Machine(), ranks, 8192, way)
            assert row["optimizer"] <= alone["optimizer"] and row["sent"] > 0
            free = simulate(layers, Machine(node_bandwidth=1e30, network_bandwidth=1e30, node_latency=0,
                                            network_latency=0), ranks, 8192, way)
            assert abs(free["exposed"]) < 1e-9
    steps = {way: simulate(nano, Machine(), 64, 8192, way)["step"] for way in ("overlapped", "plain")}
    assert steps["overlapped"] <= steps["plain"]
    for layers in (nano, seven):
        owners = assign_owners([layer.step_cost() for layer in layers], 8)
        for parts in (gradient_buckets(layers, owners), parameter_messages(layers, owners)):
            assert sorted(i for part in parts for i in part[-1]) == list(range(len(layers)))
    print("distributed_cost: all checks hold")
    return 0
