#!/usr/bin/env python3
"""What training on many ranks costs: a simulator of one step, and its check against ranks on this machine.

    benchmarks/distributed_cost.py [--model 7b] [--ranks 8,64,1024] [--tokens 8192] [--json] [a machine's numbers]
    benchmarks/distributed_cost.py --measure [--program build/gluon] [--minutes 5] [--within 1.5]
    benchmarks/distributed_cost.py --check

Modelled: the owner of each layer as gluon/distributed/sharding.cpp chooses it; forward and backward pass at 6 flops a
parameter and token; gradients that become ready from the last layer to the first, their buckets as
gradient_reducer.cpp cuts them, one after another over one link; the optimizer on the owners, shape by shape (flops of
the orthogonalization, bytes of momentum and update, a least time a product); the parameters back as shards.cpp sends
them. A message takes hops * latency + bytes / bandwidth: in a pipelined ring each byte leaves each rank once, and the
first one passes all ranks. Between nodes all GPUs of a node use their links at once.

Not modelled: activations and copies in half precision, stragglers, other traffic, the input, evaluations, checkpoints,
and the three small sums a step makes (verdict on NaN, loss, stop). One matrix is never divided.

Four ways to do the same step are printed beside each other:

    overlapped   buckets leave during the backward pass, parameters while the rest is computed
    plain        all gradients leave after the backward pass, all parameters after the optimizer: as with a CUDA graph of
                 the loss and the GPU's fused step
    renumbered   overlapped, with the owners numbered in the order in which the backward pass reaches them: those of
                 successive buckets are neighbours in the ring
    ddp          every rank adds up all gradients and orthogonalizes everything

Defaults are one H200's measured rates (docs/performance.md) and assumed links. --measure trains with 1, 2 and 4 ranks on
this machine's cores. Rates come from one rank and from two that know nothing of each other, the exchange's from two
ranks of sign descent, which hardly computes; what 2 and 4 ranks then take is predicted. Steps
beside which other programs used 0.15 cores or more count only for want of better ones; medians of the others.
"""

import argparse
import csv
import dataclasses
import itertools
import json
import math
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MIB = 2**20
STEPS = 4  # of Polar Express, the default


class BadValue(Exception):
    """One sentence for the user."""


@dataclasses.dataclass(frozen=True)
class Layer:
    rows: int
    cols: int
    kind: str = "hidden"  # orthogonalized; "tied", "embedding" and "head" are not

    entries = property(lambda self: self.rows * self.cols)
    products = property(lambda self: 0 if self.kind == "embedding" else self.entries)  # that a token multiplies with

    def step_cost(self):
        return self.entries * (min(self.rows, self.cols) if self.kind == "hidden" else 1)

    def polar_flops(self):
        """As benchmarks/step.cpp counts them: half of symmetric products, Gram form above 5:4."""
        if self.kind != "hidden":
            return 0
        k, l = sorted((self.rows, self.cols))
        if l <= 1.25 * k:
            return STEPS * (3 * k * k * l + k**3)
        return 3 * k * k * l + k**3 + (STEPS - 1) * 4 * k**3

    def polar_products(self):
        return 3 * STEPS + 1 if self.kind == "hidden" else 0


def gpt(blocks, width, vocabulary):
    """NanoGPT: embedding tied with the head."""
    block = 4 * [Layer(width, width)] + [Layer(4 * width, width), Layer(width, 4 * width)]
    return [Layer(vocabulary, width, "tied")] + blocks * block


def llama(blocks, width, inner, vocabulary):
    block = 4 * [Layer(width, width)] + 2 * [Layer(inner, width)] + [Layer(width, inner)]
    return [Layer(vocabulary, width, "embedding")] + blocks * block + [Layer(vocabulary, width, "head")]


# layers, tokens a rank and step, flop/s of an orthogonalization there (docs/performance.md: gpt124m, gpt1b3)
MODELS = {
    "nanogpt-124m": (gpt(12, 768, 50304), 32 * 1024, 450e12),
    "7b": (llama(32, 4096, 11008, 32000), 4 * 2048, 555e12),
}


@dataclasses.dataclass
class Machine:
    train_rate: float = 460e12  # flop/s of forward and backward pass: 53.3 ms for 32768 tokens of nanogpt-124m
    polar_rate: float = 450e12
    memory_rate: float = 4.2e12  # bytes/s
    update_bytes: float = 26  # an entry's in the optimizer beside the products
    product_time: float = 9e-6  # at least, for a product of one matrix
    launch_time: float = 80e-6  # of the optimizer's step
    ranks_per_node: int = 8
    node_bandwidth: float = 450e9  # bytes/s of a rank inside a node, each direction
    network_bandwidth: float = 50e9  # bytes/s of a rank between nodes
    link_share: float = 0.8  # of them that exchanges reach
    node_latency: float = 5e-6
    network_latency: float = 20e-6

    def nodes(self, ranks):
        return math.ceil(ranks / self.ranks_per_node)

    def bandwidth(self, ranks):
        if self.nodes(ranks) == 1:
            return self.link_share * self.node_bandwidth
        return self.link_share * min(self.node_bandwidth, self.network_bandwidth * self.ranks_per_node)

    def latency(self, ranks):
        """Of a ring: from its first rank to its last."""
        between = self.nodes(ranks) - 1
        return between * self.network_latency + (ranks - 1 - between) * self.node_latency

    def all_reduce(self, size, ranks):
        """Each byte leaves a rank twice; latency of a ring or of a tree, whichever is less."""
        inside = min(ranks, self.ranks_per_node)
        tree = (inside - 1) * self.node_latency + math.log2(self.nodes(ranks)) * self.network_latency
        return 2 * min(self.latency(ranks), tree) + 2 * size * (ranks - 1) / ranks / self.bandwidth(ranks)

    def optimizer(self, layers):
        """Seconds of a step over these layers on one rank."""
        if not layers:
            return 0.0
        flops = sum(layer.polar_flops() for layer in layers)
        least = self.product_time * max(layer.polar_products() for layer in layers)
        update = self.update_bytes * sum(layer.entries for layer in layers) / self.memory_rate
        return max(flops / self.polar_rate, least if flops else 0) + update + self.launch_time


def assign_owners(costs, ranks):
    """gluon/distributed/sharding.cpp: the largest first, each to the rank with the least so far."""
    loads, owners = [0.0] * ranks, [0] * len(costs)
    for layer in sorted(range(len(costs)), key=lambda i: -costs[i]):
        owners[layer] = loads.index(min(loads))
        loads[owners[layer]] += costs[layer]
    return owners


def gradient_buckets(layers, owners, window_bytes=25 * MIB):
    """[(window, layers)] in the order they leave: one bucket per owner and window."""
    buckets, window, filled, number = [], {}, 0, 0
    for i in reversed(range(len(layers))):
        size = 4 * layers[i].entries
        if filled + size > window_bytes:
            window, filled, number = {}, 0, number + 1
        filled += size
        if owners[i] not in window:
            window[owners[i]] = (number, [])
            buckets.append(window[owners[i]])
        window[owners[i]][1].append(i)
    return buckets


def parameter_messages(layers, owners):
    """[(phase, owner, layers)] in the order they leave: an owner's shapes are its phases; below 1 MiB they go together."""
    phases = {}
    for owner in set(owners):
        own = sorted({(layer.kind != "hidden", layer.rows, layer.cols) for layer, o in zip(layers, owners) if o == owner})
        phases |= {(owner, key): phase for phase, key in enumerate(own)}
    messages = {}
    for i, (layer, owner) in enumerate(zip(layers, owners)):
        phase = phases[owner, (layer.kind != "hidden", layer.rows, layer.cols)]
        alone = i if 4 * layer.entries >= MIB else -1
        messages.setdefault((phase, owner, alone), []).append(i)
    return [(phase, owner, messages[phase, owner, alone]) for phase, owner, alone in sorted(messages)]


def ready_times(layers, start, seconds):
    """When the backward pass has each gradient; it starts at the last layer. A tied head is first and last."""
    total, clock = sum(layer.products for layer in layers), start
    clock += sum(seconds * layer.products / total for layer in layers if layer.kind == "tied")
    ready = {}
    for i in reversed(range(len(layers))):
        clock += 0 if layers[i].kind == "tied" else seconds * layers[i].products / total
        ready[i] = clock
    return ready


def exchange(messages, machine, ranks):
    """When the last of [(ready, owner, bytes)] has arrived, sent in this order around one ring. A rank goes on to the next
    message when it has passed on the last one: if the next owner is h places further, the ring is h hops behind."""
    free, end, before = 0.0, 0.0, None
    for ready, owner, size in messages:
        hops = 0 if before is None else (owner - before) % ranks or 1
        start = max(ready, free + hops * machine.latency(ranks) / max(1, ranks - 1))
        free, before = start + size / machine.bandwidth(ranks), owner
        end = max(end, free + machine.latency(ranks))
    return end


def phase_ends(layers, owners, messages, machine, start):
    """{(phase, owner): when it is done}: the phases share an owner's time as they would need it alone."""
    work = {}
    for phase, owner, members in messages:
        work.setdefault(owner, {}).setdefault(phase, []).extend(layers[i] for i in members)
    ends = {}
    for owner, phases in work.items():
        clock, alone = start, {phase: machine.optimizer(phases[phase]) for phase in sorted(phases)}
        whole = machine.optimizer([layer for phase in phases.values() for layer in phase])
        for phase, seconds in alone.items():
            clock += whole * seconds / sum(alone.values())
            ends[phase, owner] = clock
    return ends


def simulate(layers, machine, ranks, tokens, way="overlapped"):
    """One step: its times in seconds, its bytes and those of a rank's memory."""
    entries = sum(layer.entries for layer in layers)
    owners = assign_owners([layer.step_cost() for layer in layers], ranks)
    if way == "renumbered":
        place = {owner: i for i, owner in enumerate(dict.fromkeys(reversed(owners)))}
        owners = [place[owner] for owner in owners]
    owned = [[layer for layer, owner in zip(layers, owners) if owner == rank] for rank in set(owners)]
    compute = 6 * sum(layer.products for layer in layers) * tokens / machine.train_rate
    ready = ready_times(layers, compute / 3, compute * 2 / 3)
    buckets, messages = gradient_buckets(layers, owners), parameter_messages(layers, owners)
    size = lambda members, each: each * sum(layers[i].entries for i in members)

    if ranks == 1:
        count, optimizer = 0, machine.optimizer(layers)
        end = compute + optimizer
    elif way == "ddp":
        windows = [[i for _, members in group for i in members]
                   for _, group in itertools.groupby(buckets, lambda bucket: bucket[0])]
        reduced = 0.0
        for window in windows:
            reduced = max(reduced, ready[min(window)]) + machine.all_reduce(size(window, 4), ranks)
        count, optimizer = len(windows), machine.optimizer(layers)
        end = max(compute, reduced) + optimizer
    else:
        late = way == "plain"
        reduced = exchange([(compute if late else ready[min(members)], owners[members[0]], size(members, 4))
                            for _, members in buckets], machine, ranks)
        start = max(compute, reduced)
        optimizer = max(machine.optimizer(own) for own in owned)
        ends = phase_ends(layers, owners, messages, machine, start)
        gathered = exchange([(start + optimizer if late else ends[phase, owner], owner, size(members, 4))
                             for phase, owner, members in messages], machine, ranks)
        count, end = len(buckets) + len(messages), max(start + optimizer, gathered)

    shard = max(sum(layer.entries for layer in own) for own in owned)
    return {
        "ranks": ranks, "way": way, "step": end, "compute": compute, "optimizer": optimizer,
        "exposed": max(0.0, end - compute - optimizer), "messages": count, "sent": 8 * entries * (ranks - 1) / ranks,
        "memory": {"parameters": 4 * entries, "gradients": 4 * entries, "buckets": 4 * entries * (ranks > 1),
                   "momentum": 4 * (entries if way == "ddp" else shard)}}


def last_useful_ranks(layers):
    """The least number of ranks at which the busiest has no more to do than the largest layer."""
    costs = [layer.step_cost() for layer in layers]
    for ranks in itertools.count(1):
        loads = [0] * ranks
        for owner, cost in zip(assign_owners(costs, ranks), costs):
            loads[owner] += cost
        if max(loads) == max(costs):
            return ranks


def show(name, layers, machine, ranks, tokens, total_tokens, as_json):
    rows = []
    for count in ranks:
        share = total_tokens / count if total_tokens else tokens
        alone = simulate(layers, machine, 1, total_tokens or tokens)
        for way in ("overlapped", "plain", "renumbered", "ddp"):
            row = simulate(layers, machine, count, share, way)
            row |= {"model": name, "tokens": share, "efficiency": alone["step"] / row["step"] / (
                count if total_tokens else 1)}
            rows.append(row)
    useful = last_useful_ranks(layers)
    if as_json:
        print(json.dumps({"model": name, "machine": dataclasses.asdict(machine), "largest_layer_from": useful,
                          "steps": rows}, indent=1))
        return
    entries = sum(layer.entries for layer in layers)
    print(f"{name}: {entries / 1e6:.0f} M parameters in {len(layers)} layers, "
          f"{'%d tokens a step' % total_tokens if total_tokens else '%d tokens a rank' % tokens}; "
          f"the largest layer bounds the optimizer from {useful} ranks on\n")
    print("| ranks | way | step ms | compute | optimizer | exposed | of linear | messages | sent GB | state GB |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        times = " | ".join(f"{1e3 * row[key]:.4g}" for key in ("step", "compute", "optimizer", "exposed"))
        print(f"| {row['ranks']} | {row['way']} | {times} | {row['efficiency']:.0%} | {row['messages']} | "
              f"{row['sent'] / 1e9:.3g} | {sum(row['memory'].values()) / 1e9:.4g} |")
    print()


# ------------------------------------------------------------------------------------------------ ranks on this machine

QUIET, ENOUGH = 0.15, 12  # cores that others may use during a step that counts; such steps
SMALL = {"layers": 2, "width": 384, "heads": 6, "seq": 64, "batch": 12, "parts": 12}  # 1, 2 and 4 ranks share evenly


def busy_seconds():
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    used = [int(x) for i, x in enumerate(fields) if i not in (3, 4)]  # idle, iowait
    return sum(used) / os.sysconf("SC_CLK_TCK")


def used_by(processes):
    """Seconds of cores that these processes have used; those that have ended count as nothing."""
    used = 0
    for process in processes:
        try:
            used += sum(map(int, Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]))
        except OSError:
            pass
    return used / os.sysconf("SC_CLK_TCK")


def start(program, folder, ranks, preset, steps, copies):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    processes = []
    for copy, rank in itertools.product(range(copies), range(ranks)):
        place = {"RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1",
                 "MASTER_PORT": port}
        command = [program, "train", "--threads", "1", "--ranks", str(ranks), "--data", f"{folder}/text", "--preset",
                   preset, f"--steps={steps}", "--eval-every=100000", "--save-every=100000", "--out",
                   f"{folder}/run{copy}", *[f"--{key}={value}" for key, value in SMALL.items()]]
        processes.append(subprocess.Popen(command, env=os.environ | (place if ranks > 1 else {}),
                                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
    return processes


def train(program, ranks, preset, steps, copies=1):
    """[(seconds, of these the optimizer's, cores that others used meanwhile)] of each step; copies: runs that know nothing
    of each other."""
    with tempfile.TemporaryDirectory() as folder:
        Path(f"{folder}/text").write_bytes(bytes(32 + (i * i // 7) % 90 for i in range(60000)))
        processes = start(program, folder, ranks, preset, steps, copies)
        log, marks = Path(f"{folder}/run0/log.csv"), []  # marks: when a line of the log came, and what was used by then
        while any(process.poll() is None for process in processes):
            lines = log.read_bytes().count(b"\n") if log.exists() else 0
            while len(marks) < lines:
                marks.append((time.monotonic(), busy_seconds() - used_by(processes)))
            time.sleep(0.02)
        for process in processes:
            if process.returncode != 0:
                raise BadValue(f"the training on {ranks} ranks failed: {process.communicate()[1].strip()}")
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
    quiet = lambda key: [step for step in seen[key] if step[2] < QUIET]
    deadline = time.monotonic() + 60 * options.minutes
    while min(len(quiet(key)) for key in wanted) < ENOUGH and (time.monotonic() < deadline or not all(seen.values())):
        for key, (ranks, preset, copies) in wanted.items():
            if len(quiet(key)) < ENOUGH:
                seen[key] += train(options.program, ranks, preset, options.steps, copies)
    best = {}
    for key, steps in seen.items():
        taken = quiet(key) if len(quiet(key)) >= 3 else sorted(steps, key=lambda step: step[2])[:3]
        best[key] = [statistics.median(step[i] for step in taken) for i in range(3)]
        print(f"{key:9} {wanted[key][0]} ranks, {wanted[key][1]:12}: step {1e3 * best[key][0]:4.0f} ms, optimizer "
              f"{1e3 * best[key][1]:4.0f} ms; {len(taken)} of {len(steps)} steps, others used {best[key][2]:.2f} cores")

    layers = gpt(SMALL["layers"], SMALL["width"], 256)
    alone, crowd, signs, exchange = (best[key] for key in ("alone", "crowd", "signs", "exchange"))
    flops = sum(layer.polar_flops() for layer in layers)
    speed = Cores(cores, max(1.0, crowd[0] / alone[0]), alone[0] - alone[1], (alone[1] - signs[1]) / flops,
                  signs[1] / sum(layer.entries for layer in layers))
    # What two ranks of sign descent take beyond their work is the exchange: so long for one core and one copy of it all.
    step, optimizer = on_cores([dataclasses.replace(layer, kind="tied") for layer in layers], speed, 2)
    speed.exchange = min(2, cores) * max(0.0, exchange[0] - step)
    speed.late = min(1.0, max(0.0, exchange[1] - optimizer) / max(1e-9, exchange[0] - step))
    print(f"\n{cores} cores, {speed.crowding:.2f} times slower when all are busy; an exchange of all gradients and parameters"
          f" takes a core {1e3 * speed.exchange:.0f} ms, {speed.late:.0%} of it after the backward pass\n")
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
    assert assign_owners([3, 1, 2, 2], 2) == [0, 0, 1, 1]
    nano, seven = MODELS["nanogpt-124m"][0], MODELS["7b"][0]
    assert sum(layer.entries for layer in nano) == 123_568_128
    assert round(sum(layer.entries for layer in seven) / 1e6) == 6738
    assert last_useful_ranks(seven) == 160
    for layers, way in itertools.product((nano, seven), ("overlapped", "plain", "renumbered", "ddp")):
        alone = simulate(layers, Machine(), 1, 8192, way)
        assert alone["sent"] == 0 and alone["exposed"] == 0
        for ranks in (2, 8, 64):
            row = simulate(layers, Machine(), ranks, 8192, way)
            assert row["optimizer"] <= alone["optimizer"] and row["sent"] > 0
            free = simulate(layers, Machine(node_bandwidth=1e30, network_bandwidth=1e30, node_latency=0,
                                            network_latency=0), ranks, 8192, way)
            assert abs(free["exposed"]) < 1e-9
    steps = {way: simulate(nano, Machine(), 64, 8192, way)["step"] for way in ("overlapped", "plain", "renumbered")}
    assert steps["overlapped"] <= steps["plain"] and steps["renumbered"] <= steps["overlapped"]
    for layers in (nano, seven):
        owners = assign_owners([layer.step_cost() for layer in layers], 8)
        for parts in (gradient_buckets(layers, owners), parameter_messages(layers, owners)):
            assert sorted(i for part in parts for i in part[-1]) == list(range(len(layers)))
    print("distributed_cost: all checks hold")
    return 0


def positive(kind):
    def parse(text):
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not (math.isfinite(value) and value > 0):
            raise BadValue(f"expected a positive {'whole number' if kind is int else 'number'}, got '{text}'")
        return value
    return parse


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, help="both when not given")
    parser.add_argument("--ranks", default="8,64,1024")
    parser.add_argument("--tokens", help="of a rank and step (default: the model's)")
    parser.add_argument("--total-tokens", help="of a step, shared by the ranks, instead")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--measure", action="store_true", help="predict ranks on this machine and run them")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--program", default="build/gluon")
    parser.add_argument("--minutes", default="5", help="to wait for quiet steps")
    parser.add_argument("--steps", default="14")
    parser.add_argument("--within", default="1.5", help="bound on predicted / measured and its inverse")
    for field in dataclasses.fields(Machine):
        parser.add_argument("--" + field.name.replace("_", "-"), metavar=f"{field.default:g}")
    options = parser.parse_args()
    try:
        for name, kind in (("minutes", float), ("steps", int), ("within", float)):
            setattr(options, name, positive(kind)(getattr(options, name)))
        if options.check:
            return check()
        if options.measure:
            if options.steps < 5 or not Path(options.program).exists():
                raise BadValue(f"--measure needs 5 steps or more and a program, got {options.steps} and {options.program}")
            return measure(options)
        ranks = [positive(int)(text) for text in options.ranks.split(",")]
        given = {field.name: positive(field.type)(getattr(options, field.name))
                 for field in dataclasses.fields(Machine) if getattr(options, field.name) is not None}
        for name in [options.model] if options.model else MODELS:
            layers, tokens, rate = MODELS[name]
            machine = Machine(**({"polar_rate": rate} | given))
            show(name, layers, machine, ranks, positive(int)(options.tokens) if options.tokens else tokens,
                 positive(int)(options.total_tokens) if options.total_tokens else 0, options.json)
    except BadValue as error:
        print(f"distributed_cost: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
