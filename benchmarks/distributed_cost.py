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

Three ways to do the same step are printed beside each other:

    overlapped   buckets leave during the backward pass, parameters while the rest is computed
    plain        all gradients leave after the backward pass, all parameters after the optimizer: as with a CUDA graph
                 of the loss and the GPU's fused step
    ddp          every rank adds up all gradients and orthogonalizes everything

Defaults are one H200's measured rates (docs/performance.md) and assumed links. --measure and --check are in
distributed_cost_test.py.
"""

import argparse
import dataclasses
import itertools
import json
import math
import sys
from pathlib import Path

MIB = 2**20
STEPS = 4  # of Polar Express, the default
WAYS = ("overlapped", "plain", "ddp")


@dataclasses.dataclass(frozen=True)
class Layer:
    rows: int
    cols: int
    kind: str = "hidden"  # orthogonalized; "tied", "embedding" and "head" are not

    entries = property(lambda self: self.rows * self.cols)
    products = property(lambda self: 0 if self.kind == "embedding" else self.entries)  # that a token multiplies with

    def step_cost(self):
        return self.polar_flops() if self.kind == "hidden" else self.entries

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
    """gluon/distributed/sharding.cpp: the largest first, each to the rank with the least so far; ranks in the order in
    which the backward pass reaches their layers, so that successive buckets go to neighbours in the ring."""
    loads, owners = [0.0] * ranks, [0] * len(costs)
    for layer in sorted(range(len(costs)), key=lambda i: -costs[i]):
        owners[layer] = loads.index(min(loads))
        loads[owners[layer]] += costs[layer]
    place = {owner: i for i, owner in enumerate(dict.fromkeys(reversed(owners)))}
    return [place[owner] for owner in owners]


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
    """[(phase, owner, layers)] in the order they leave: an owner's shapes are its phases; small ones go together."""
    shapes = [(layer.kind != "hidden", layer.rows, layer.cols) for layer in layers]
    phases = {}
    for owner, shape in sorted(set(zip(owners, shapes))):
        phases[owner, shape] = sum(other == owner for other, _ in phases)
    messages = {}
    for i, (layer, owner) in enumerate(zip(layers, owners)):
        alone = i if 4 * layer.entries >= MIB else -1
        messages.setdefault((phases[owner, shapes[i]], owner, alone), []).append(i)
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
    """When the last of [(ready, owner, bytes)] has arrived, sent in this order around one ring. A rank takes the next
    message when it has passed on the one before: if the next owner is h places further, that costs h hops."""
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


def last_useful_ranks(layers, machine):
    """The least number of ranks on which the optimizer is as fast as with a rank for each layer."""
    limit = simulate(layers, machine, len(layers), 1)["optimizer"]
    return next(ranks for ranks in itertools.count(1)
                if simulate(layers, machine, ranks, 1)["optimizer"] <= 1.001 * limit)


def show(name, layers, machine, options, tokens):
    rows, total = [], options.total_tokens
    for ranks in options.ranks:
        share = total / ranks if total else tokens
        linear = simulate(layers, machine, 1, total)["step"] / ranks if total else simulate(
            layers, machine, 1, tokens)["step"]
        for way in WAYS:
            row = simulate(layers, machine, ranks, share, way)
            rows.append(row | {"model": name, "tokens": share, "efficiency": linear / row["step"]})
    useful = last_useful_ranks(layers, machine)
    if options.json:
        print(json.dumps({"model": name, "machine": dataclasses.asdict(machine), "optimizer_no_faster_from": useful,
                          "steps": rows}, indent=1))
        return
    print(f"{name}: {sum(layer.entries for layer in layers) / 1e6:.0f} M parameters in {len(layers)} layers, "
          f"{total or tokens} tokens a {'step' if total else 'rank'}; the optimizer gets no faster beyond "
          f"{useful} ranks\n")
    print("| ranks | way | step, ms | compute | optimizer | exposed | of linear | messages | sent, GB | state, GB |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        times = " | ".join(f"{1e3 * row[key]:.1f}" for key in ("step", "compute", "optimizer", "exposed"))
        print(f"| {row['ranks']} | {row['way']} | {times} | {row['efficiency']:.0%} | {row['messages']} | "
              f"{row['sent'] / 1e9:.3g} | {sum(row['memory'].values()) / 1e9:.3g} |")
    print()


def positive(kind, most=math.inf):
    def parse(text):
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not 0 < value < most:  # NaN, too, is not
            raise argparse.ArgumentTypeError(f"expected a positive {'whole ' * (kind is int)}number, got '{text}'")
        return value
    return parse


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(2, f"distributed_cost: {message}\n")


def parse_options():
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, help="both when not given")
    parser.add_argument("--ranks", type=lambda text: [positive(int, 1e5)(part) for part in text.split(",")],
                        default=[8, 64, 1024])
    parser.add_argument("--tokens", type=positive(int), help="of a rank and step (default: the model's)")
    parser.add_argument("--total-tokens", type=positive(int), help="of a step, shared by the ranks, instead")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true", help="what must hold of the simulator")
    parser.add_argument("--measure", action="store_true", help="predict ranks on this machine and run them")
    parser.add_argument("--program", default="build/gluon")
    parser.add_argument("--minutes", type=positive(float), default=5, help="to wait for quiet steps (5)")
    parser.add_argument("--within", type=positive(float), default=1.5, help="bound on predicted / measured (1.5)")
    for field in dataclasses.fields(Machine):
        flag = "--" + field.name.replace("_", "-")
        parser.add_argument(flag, type=positive(field.type), metavar=f"{field.default:g}")
    options = parser.parse_args()
    if options.measure and not Path(options.program).exists():
        parser.error(f"--program: there is no {options.program}")
    return options


def main():
    options = parse_options()
    if options.check or options.measure:
        import distributed_cost_test
        return distributed_cost_test.check() if options.check else distributed_cost_test.measure(options)
    for name in [options.model] if options.model else MODELS:
        layers, tokens, rate = MODELS[name]
        given = {field.name: getattr(options, field.name) for field in dataclasses.fields(Machine)}
        machine = Machine(**{"polar_rate": rate} | {key: value for key, value in given.items() if value is not None})
        show(name, layers, machine, options, options.tokens or tokens)
    return 0


if __name__ == "__main__":
    sys.exit(main())
