"""The training runs of time_to_loss.py: peers, on the model of peer_systems.py, and ours, `gluon train`.

Peers start from the weights of `gluon train` with the same seed, and have its batches in its order, its schedule and
its validation windows, as in lab/models/nanogpt.cpp, lab/data/token_dataset.cpp and permutation.cpp, and
gluon/radius/schedule.cpp.
"""
import contextlib
import csv
import dataclasses
import functools
import glob
import itertools
import json
import math
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import typing

import torch

from peer_systems import NanoGpt, Scion, StackedPolarExpress, scion_scale

WARMUP_STEPS = 10  # after so many every system has compiled, captured and allocated what it needs


class BadInput(Exception):
    """The user's mistake, in one sentence."""


# ---- data -------------------------------------------------------------------------------------------------------

MAGIC, VERSION, HEADER_BYTES = 20240520, 1, 1024


def read_shard(path):
    data = pathlib.Path(path).read_bytes()
    header = struct.unpack("<3i", data[:12]) if len(data) >= HEADER_BYTES else (0, 0, 0)
    if header[:2] != (MAGIC, VERSION):
        raise BadInput(f"{path} is not a token shard of version {VERSION}")
    if header[2] < 1 or len(data) != HEADER_BYTES + 2 * header[2]:
        raise BadInput(f"{path} has {len(data)} bytes, its header promises {header[2]} tokens")
    return torch.frombuffer(bytearray(data), dtype=torch.int16, offset=HEADER_BYTES).int() & 0xffff


def read_tokens(pattern):
    """The tokens of all shards of a pattern as one stream, int32."""
    paths = sorted(glob.glob(pattern))
    if not paths:
        raise BadInput(f"no file matches {pattern}")
    try:
        return torch.cat([read_shard(path) for path in paths])
    except OSError as error:
        raise BadInput(f"cannot read {error.filename}: {error.strerror}") from error


def mixed(bits):
    for shift, factor in [(30, 0xbf58476d1ce4e5b9), (27, 0x94d049bb133111eb)]:
        bits = (bits ^ (bits >> shift)) * factor % 2**64
    return bits ^ (bits >> 31)


def mixed_bits(seed, stream, index):
    golden, bits = 0x9e3779b97f4a7c15, seed
    for count in (1, stream + 1, index + 1):
        bits = mixed((bits + count * golden) % 2**64)
    return bits


def permuted(index, count, key):
    """The place of `index` in the order of an epoch: four rounds of a Feistel network."""
    if count == 1:
        return 0
    half = ((count - 1).bit_length() + 1) // 2
    mask = 2**half - 1
    value = (index + mixed_bits(key, 4, 0) % count) % count
    while True:
        left, right = value >> half, value & mask
        for turn in range(4):
            left, right = right, left ^ (mixed_bits(key, turn, right) & mask)
        value = left << half | right
        if value < count:
            return value


class Windows:
    """Inputs and targets (batch, seq) of a stream of tokens, cut on the device."""

    def __init__(self, tokens, seq, device):
        self.seq, self.tokens, self.count = seq, tokens.to(device), (len(tokens) - 1) // seq
        self.offsets = torch.arange(seq, device=device)

    def batch(self, numbers):
        places = numbers[:, None] * self.seq + self.offsets
        return self.tokens[places].long(), self.tokens[places + 1].long()

    def order(self, steps, batch, seed):
        """The numbers of the windows of every training step, (steps, batch)."""
        key = functools.lru_cache(maxsize=None)(lambda epoch: mixed_bits(seed, 1, epoch))
        numbers = [permuted(i % self.count, self.count, key(i // self.count)) for i in range(steps * batch)]
        return torch.tensor(numbers, device=self.tokens.device).view(steps, batch)


def multiplier(step, steps, cooldown, warmup):
    """The schedule linear(steps,cooldown,warmup) at step 0, 1, ..."""
    if step < warmup:
        return (step + 1) / warmup
    return min(1, (steps - step) / max(cooldown, 1))


# ---- systems ----------------------------------------------------------------------------------------------------


def muon(hidden, embedding, rate, embedding_rate):
    rest = torch.optim.AdamW(embedding, lr=embedding_rate, betas=(0.9, 0.95), weight_decay=0, **fused(embedding))
    return [torch.optim.Muon(hidden, lr=rate, weight_decay=0), rest]


def adamw(hidden, embedding, rate, embedding_rate):
    groups = [{"params": hidden, "lr": rate}, {"params": embedding, "lr": embedding_rate}]
    return [torch.optim.AdamW(groups, betas=(0.9, 0.95), weight_decay=0.1, **fused(embedding))]


def scion(hidden, embedding, rate, embedding_rate):
    return [Scion(hidden, embedding, radius=rate, embedding_radius=embedding_rate)]


def stacked(hidden, embedding, rate, embedding_rate):
    return [StackedPolarExpress(hidden, radius=rate, beta=0.9, nesterov=False, scale=scion_scale),
            Scion([], embedding, embedding_radius=embedding_rate)]


def fused(parameters):
    return {"fused": True} if parameters[0].is_cuda else {}


@dataclasses.dataclass
class Peer:
    name: str
    make: typing.Callable  # hidden matrices, embedding, their rates -> optimizers
    rates: list  # of the hidden matrices: the default grid
    embedding_ratio: float  # the embedding's rate over the hidden matrices', unless given
    clip: float = math.inf

    def why_missing(self, device):
        """Why this torch or device cannot run it, or an empty text."""
        if self.make is muon and not hasattr(torch.optim, "Muon"):
            return f"PyTorch {torch.__version__} has no torch.optim.Muon"
        return "it compiles for a GPU" if self.make is stacked and device == "cpu" else ""


PEERS = {
    "muon": Peer("torch.optim.Muon, fused AdamW", muon, [0.01, 0.02, 0.04], 0.15),
    "adamw": Peer("fused AdamW", adamw, [0.001, 0.002, 0.004], 1, clip=1.0),
    "scion": Peer("eager Scion", scion, [0.009, 0.018, 0.036], 60),
    "stacked": Peer("stacked Polar Express Scion", stacked, [0.009, 0.018, 0.036], 60),
}


def point(step, seconds, loss):
    """One evaluation of a run."""
    if not math.isfinite(loss):
        raise FloatingPointError(f"the validation loss is {loss} after {step} steps")
    return {"step": step, "seconds": seconds, "val": loss}


def set_multiplier(optimizer, factor):
    if not isinstance(optimizer, torch.optim.Optimizer):
        optimizer.multiplier = factor
        return
    for group in optimizer.param_groups:
        group["lr"] = factor * group.setdefault("initial_lr", group["lr"])


# ---- training ---------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1)
def initial_weights(seed, vocabulary, width, layers):
    """By name, bit for bit those of our NanoGpt: uniform in +-1/sqrt(width), output projections zero."""
    random = torch.Generator().manual_seed(seed)

    def uniform(rows):
        return torch.empty(rows, width).uniform_(-1 / math.sqrt(width), 1 / math.sqrt(width), generator=random)

    weights = {"head.weight": uniform(vocabulary)}
    for i in range(layers):
        for name, rows in [("c_q", width), ("c_k", width), ("c_v", width), ("c_up", 4 * width)]:
            weights[f"blocks.{i}.{name}.weight"] = uniform(rows)
        weights[f"blocks.{i}.c_proj.weight"] = torch.zeros(width, width)
        weights[f"blocks.{i}.c_down.weight"] = torch.zeros(width, 4 * width)
    return weights


class PeerTrainer:
    """One compiled model for all peers, rates and seeds: a run resets its parameters in place.

    `settings` are those of time_to_loss.py.
    """

    def __init__(self, settings, training, validation, device):
        self.settings, self.device = settings, device
        on_gpu = device == "cuda"
        self.training, self.validation = (Windows(tokens, settings["seq"], device) for tokens in (training, validation))
        numbers = torch.arange(settings["val_tokens"] // settings["seq"], device=device)
        self.validation_numbers = numbers.view(-1, settings["batch"])
        model = NanoGpt(settings["vocabulary"], settings["seq"], settings["layers"], settings["width"],
                        settings["heads"], stream=torch.bfloat16 if on_gpu else torch.float32)
        self.model = model.to(device)
        self.loss = torch.compile(self.model, dynamic=False) if on_gpu else self.model
        self.precision = (lambda: torch.autocast("cuda", torch.bfloat16)) if on_gpu else contextlib.nullcontext
        self.hidden, self.embedding = list(self.model.blocks.parameters()), [self.model.head.weight]
        self.startups = {}  # seconds: of the model, and of a peer's optimizers by its name

    def reset(self, seed):
        weights = initial_weights(seed, self.settings["vocabulary"], self.settings["width"], self.settings["layers"])
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(weights[name])

    def clock(self):
        """The time when the device is idle."""
        if self.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def compute_gradients(self, numbers):
        self.model.zero_grad(set_to_none=True)
        with self.precision():
            loss = self.loss(*self.training.batch(numbers))
        loss.backward()

    def step(self, peer, optimizers, numbers):
        self.compute_gradients(numbers)
        if peer.clip < math.inf:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), peer.clip)
        for optimizer in optimizers:
            optimizer.step()

    @torch.no_grad()
    def evaluate(self):
        with self.precision():
            losses = [self.loss(*self.validation.batch(numbers)) for numbers in self.validation_numbers]
        return torch.stack(losses).double().mean().item()

    def excess(self, run, order):
        """The seconds by which the first steps exceed as many later ones."""
        times = [self.clock()]
        for part in range(2):
            for numbers in order:
                run(numbers)
            times.append(self.clock())
        return max(0, 2 * times[1] - times[0] - times[2])

    def start_up(self, peer):
        """Seconds to compile and warm up: the model, once in a process, and this peer's optimizers."""
        order = self.training.order(WARMUP_STEPS, self.settings["batch"], seed=0)
        if not self.startups:
            self.reset(seed=0)
            self.startups["model"] = self.excess(self.compute_gradients, order)
            self.evaluate()  # compiles once more, which is not training
        if peer.name not in self.startups:
            self.reset(seed=0)
            optimizers = peer.make(self.hidden, self.embedding, peer.rates[0], peer.rates[0] * peer.embedding_ratio)
            self.startups[peer.name] = self.excess(functools.partial(self.step, peer, optimizers), order)
        return self.startups["model"] + self.startups[peer.name]

    def train(self, peer, rate, embedding_rate, seed):
        """One run: its seconds without validation, and at each evaluation the loss and the seconds so far."""
        startup, settings = self.start_up(peer), self.settings
        steps = settings["steps"]
        self.reset(seed)
        optimizers = peer.make(self.hidden, self.embedding, rate, embedding_rate)
        order = self.training.order(steps, settings["batch"], seed)
        seconds = validation = 0
        curve = []
        begin = self.clock()
        for step in range(steps):
            for optimizer in optimizers:
                set_multiplier(optimizer, multiplier(step, steps, settings["cooldown"], settings["warmup"]))
            self.step(peer, optimizers, order[step])
            if (step + 1) % settings["eval_every"] and step + 1 < steps:
                continue
            end = self.clock()
            seconds += end - begin
            curve.append(point(step + 1, seconds, self.evaluate()))
            begin = self.clock()
            validation += begin - end
        return {"seconds": seconds, "startup_seconds": startup, "validation_seconds": validation, "curve": curve}


# ---- ours -------------------------------------------------------------------------------------------------------


def read_log(path):
    """What PeerTrainer.train() returns, from the log.csv of a run of ours."""
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    ends = [float(row["seconds"]) for row in rows]
    times = [end - begin for begin, end in zip([0, *ends], ends)]
    validated = [row["val"] != "" for row in rows]
    steady = statistics.median(itertools.compress(times[WARMUP_STEPS:], [not val for val in validated[WARMUP_STEPS:]]))
    training = [steady if val else seconds for seconds, val in zip(times, validated)]
    startup = max(0, sum(training[:WARMUP_STEPS]) - WARMUP_STEPS * steady)
    so_far = [seconds - startup for seconds in itertools.accumulate(training)]
    curve = [point(int(row["step"]), seconds, float(row["val"]))
             for row, seconds in itertools.compress(zip(rows, so_far), validated)]
    return {"seconds": so_far[-1], "startup_seconds": startup, "validation_seconds": ends[-1] - sum(training),
            "curve": curve}


def train_ours(options, settings, rate, embedding_rate, seed):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "run"
        steps, cooldown, warmup = (settings[key] for key in ("steps", "cooldown", "warmup"))
        flags = {key: settings[key] for key in ("model", "layers", "width", "heads", "vocabulary", "batch", "seq",
                                                "steps", "eval_every", "val_tokens")}
        flags.update(device=options.device, data=options.data, val_data=options.val_data, seed=seed, preset="unscion",
                     radius=f"hidden={rate},embedding={embedding_rate}", save_every=steps, out=out,
                     schedule=f"linear({steps},{cooldown},{warmup})")
        command = [options.program, "train", *options.ours_flags]
        for key, value in flags.items():
            command += ["--" + key.replace("_", "-"), value]
        begin = time.monotonic()
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
        print(done.stderr, end="", file=sys.stderr)  # contains warnings about slow paths
        if done.returncode != 0:
            raise RuntimeError((done.stderr or done.stdout).strip().rpartition("\n")[2])
        facts = json.loads((out / "facts.json").read_text())
        return {**read_log(out / "log.csv"), "process_seconds": time.monotonic() - begin,
                "precision": facts["precision"]}
