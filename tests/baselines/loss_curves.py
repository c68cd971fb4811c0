#!/usr/bin/python3
"""Writes loss_curves.txt, the numbers behind tests/lab/train/loss_curve_test.cpp:  tests/baselines/loss_curves.py

Models and optimizers are written here a second time, from their formulas and in float64, sharing nothing with the
C++ code but PyTorch's automatic differentiation: attention by einsum over complex rotations, GELU by erf, batch norm
by its moments, the default orthogonalizer as a function of singular values with scripts/polar_squares.py's coefficients.
Weights and data are hashes of names and indices (uniform()), the same in the test: no generator, no file, no library
version has a say. Needs Debian's python3-torch (scripts/setup.sh python3-torch).
"""
import math
import pathlib
import sys

import numpy as np
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import polar_squares

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)

STEPS, COOLDOWN = 30, 9  # the trainer's default schedule: the last 30 % linearly to 0, under sphere all steps
VOCABULARY, WIDTH, HEADS, BLOCKS, CONTEXT = 64, 32, 2, 2, 32
CHANNELS, CLASSES, SIDE, SMOOTHING = (4, 8, 8), 10, 25, 0.2
BATCH, FULL_BATCH_EXAMPLES, EXAMPLES, VALIDATION = {"nanogpt": 4, "cnn": 5}, {"nanogpt": 8, "cnn": 10}, 250, 1000

# Gradients jump where the largest of the pooled values changes, exact polar factors where the smallest singular value
# passes 0. A curve has to keep away from both, or float32 may take the other side: distances relative to the tensor's
# deviation and to the largest singular value, ten times what rounding moves, the latter also above the singular values
# that count as zero in float32 (32 epsilons = 4e-6).
SMALLEST_DISTANCE = {"pool": 5e-6, "rank": 1e-5}

# model, preset, radii, batches per step (0: the whole set). The radii were chosen to keep those distances.
CASES = [
    ("nanogpt", "unscion", "hidden=0.05,embedding=0.5", 1),
    ("nanogpt", "scion", "gamma=0.006,hidden=5,embedding=60", 1),
    ("nanogpt", "sphere", "factor=0.5,embedding=0.5", 1),
    ("nanogpt", "muon", "hidden=0.02,adamw=0.003", 2),
    ("nanogpt", "normuon", "hidden=0.02,adamw=0.003", 2),
    ("nanogpt", "sign_descent", "all=0.003", 1),
    ("nanogpt", "normalized_descent", "all=0.1", 1),
    ("nanogpt", "sgd", "all=1", 1),
    ("nanogpt", "deterministic_gluon", "L0=56,L1=20", 0),
    ("nanogpt", "adamw", "all=0.003", 1),
    ("cnn", "unscion", "conv=0.03,head=2,vector=0.02", 1),
    ("cnn", "scion", "conv_gamma=0.004,conv=4,head=80", 1),
    ("cnn", "sphere", "factor=0.35,head=1.1", 1),
    ("cnn", "muon", "hidden=0.0075,adamw=0.0025", 2),
    ("cnn", "normuon", "hidden=0.0055,adamw=0.0028", 2),
    ("cnn", "sign_descent", "all=0.0018", 1),
    ("cnn", "normalized_descent", "all=0.05", 1),
    ("cnn", "sgd", "all=0.2", 1),
    ("cnn", "deterministic_gluon", "L0=2,L1=15", 0),
    ("cnn", "adamw", "all=0.0022", 1),
]


# ---- values from names ----------------------------------------------------------------------------------------------


def bits(stream, index):
    """splitmix64 of an index, every stream with its own start (FNV-1a of its name)."""
    start = 0xCBF29CE484222325
    for byte in stream.encode():
        start = (start ^ byte) * 0x100000001B3 % 2**64
    with np.errstate(over="ignore"):
        z = np.uint64(start) + (np.asarray(index, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def uniform(stream, index):
    """In [-1, 1), with 24 bits: exact in float32."""
    return (bits(stream, index) >> np.uint64(40)).astype(np.float64) / 2**23 - 1


def as_float32(values):
    return torch.from_numpy(values.astype(np.float32).astype(np.float64))


def weight(name, *shape):
    fan_in = math.prod(shape[1:]) if len(shape) > 1 else 100
    bound = 1.0 if name == "head.weight" else 1 / math.sqrt(fan_in)
    return as_float32(uniform(name, np.arange(math.prod(shape))) * bound).reshape(shape).requires_grad_()


def tokens(first, count):
    """Words of four letters, the words at random: (count, CONTEXT + 1)."""
    place = (first + np.arange(count))[:, None] * CONTEXT + np.arange(CONTEXT + 1)
    word = bits("words", place // 4) % np.uint64(16)
    letter = bits("letters", word * np.uint64(4) + (place % 4).astype(np.uint64)) % np.uint64(VOCABULARY)
    return torch.from_numpy(letter.astype(np.int64))


def images(first, count):
    """A coarse pattern for each class, and noise: (count, 3, SIDE, SIDE) and labels (count)."""
    number = first + np.arange(count)
    label = number % CLASSES
    c, y, x = np.meshgrid(np.arange(3), np.arange(SIDE), np.arange(SIDE), indexing="ij")
    coarse = uniform("pattern", label[:, None, None, None] * 48 + c * 16 + y // 8 * 4 + x // 8)
    noise = uniform("noise", number[:, None, None, None] * (3 * SIDE * SIDE) + (c * SIDE + y) * SIDE + x)
    return as_float32(0.75 * coarse + 0.75 * noise), torch.from_numpy(label)


# ---- models ---------------------------------------------------------------------------------------------------------


distances = {}  # of the curve so far


def note_distance(kind, value):
    distances[kind] = min(distances.get(kind, math.inf), value)


def max_pool(x, side):
    windows = x.unfold(2, side, side).unfold(3, side, side).flatten(-2)  # the rest at the edges is dropped
    largest = windows.topk(2, -1).values
    if torch.is_grad_enabled():
        note_distance("pool", ((largest[..., 0] - largest[..., 1]).min() / x.std()).item())
    return largest[..., 0]


def cross_entropy(logits, targets, smoothing=0.0):
    log_p = logits - torch.logsumexp(logits, -1, keepdim=True)
    of_target = log_p.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    return -((1 - smoothing) * of_target + smoothing * log_p.mean(-1)).mean()


class Model:
    def __init__(self):
        self.roles, self.parameters = {}, {}

    def add(self, name, role, *shape):
        self.roles[name], self.parameters[name] = role, weight(name, *shape)


class NanoGpt(Model):
    def __init__(self):
        super().__init__()
        for i in range(BLOCKS):
            for part, m, n in [("attn.c_q", 1, 1), ("attn.c_k", 1, 1), ("attn.c_v", 1, 1), ("attn.c_proj", 1, 1),
                               ("mlp.c_fc", 4, 1), ("mlp.c_proj", 1, 4)]:
                self.add(f"transformer.h.{i}.{part}.weight", "hidden", m * WIDTH, n * WIDTH)
        self.add("transformer.wte.weight", "embedding", VOCABULARY, WIDTH)
        half = WIDTH // HEADS // 2
        angles = torch.outer(torch.arange(CONTEXT, dtype=torch.float64), 10000.0 ** (-torch.arange(half) / half))
        self.turns = torch.polar(torch.ones_like(angles), -angles)  # clockwise, as modded-nanogpt

    def rotated(self, x):  # (B, T, heads, D): entries i and i + D / 2 are one complex number
        real, imaginary = x.chunk(2, -1)
        z = torch.complex(real, imaginary) * self.turns[: x.shape[1], None, :]
        return torch.cat([z.real, z.imag], -1)

    def loss(self, first, count, training):
        text = tokens(first, count)
        p = {name.removeprefix("transformer.").removesuffix(".weight"): w for name, w in self.parameters.items()}
        norm = lambda x: x / torch.sqrt((x * x).mean(-1, keepdim=True) + 2.0**-23)  # float32's epsilon
        x = p["wte"][text[:, :-1]]
        later = torch.ones(CONTEXT, CONTEXT).triu(1).bool()
        for i in range(BLOCKS):
            y = norm(x)
            q, k, v = ((y @ p[f"h.{i}.attn.c_{c}"].T).unflatten(-1, (HEADS, -1)) for c in "qkv")
            scores = torch.einsum("bthd,bshd->bhts", self.rotated(norm(q)), self.rotated(norm(k)))
            scores = (scores / math.sqrt(WIDTH / HEADS)).masked_fill(later, -math.inf)
            mixed = torch.einsum("bhts,bshd->bthd", scores.softmax(-1), v).flatten(2)
            x = x + mixed @ p[f"h.{i}.attn.c_proj"].T
            x = x + 2 * (norm(x) @ p[f"h.{i}.mlp.c_fc"].T).clamp(min=0) ** 2 @ p[f"h.{i}.mlp.c_proj"].T
        return cross_entropy(norm(x) @ p["wte"].T, text[:, 1:])


class Cnn(Model):
    def __init__(self):
        super().__init__()
        self.statistics = {}
        self.whiten = weight("whiten.weight", 24, 3, 2, 2).detach()
        self.add("whiten.bias", "vector", 24)
        before = 24
        for i, after in enumerate(CHANNELS, 1):
            self.add(f"layers.{i}.conv1.weight", "conv", after, before, 3, 3)
            self.add(f"layers.{i}.conv2.weight", "conv", after, after, 3, 3)
            for norm in ("norm1", "norm2"):
                self.add(f"layers.{i}.{norm}.bias", "vector", after)
                self.statistics[f"layers.{i}.{norm}"] = torch.zeros(after), torch.ones(after)
            before = after
        self.add("head.weight", "head", CLASSES, before)

    def normalised(self, x, name, training):
        if training:
            mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=False)
            count = x.numel() / x.shape[1]
            new = mean.detach(), variance.detach() * count / (count - 1)
            self.statistics[name] = [0.6 * a + 0.4 * b for a, b in zip(self.statistics[name], new)]
        else:
            mean, variance = self.statistics[name]
        at = lambda v: v[:, None, None]
        return (x - at(mean)) / at(torch.sqrt(variance + 1e-12)) + at(self.parameters[name + ".bias"])

    def loss(self, first, count, training):
        x, labels = images(first, count)
        gelu = lambda x: x * (1 + torch.erf(x / math.sqrt(2))) / 2
        conv = torch.nn.functional.conv2d
        x = gelu(conv(x, self.whiten, self.parameters["whiten.bias"]))
        for i in range(1, 4):
            x = max_pool(conv(x, self.parameters[f"layers.{i}.conv1.weight"], padding=1), 2)
            x = gelu(self.normalised(x, f"layers.{i}.norm1", training))
            x = conv(x, self.parameters[f"layers.{i}.conv2.weight"], padding=1)
            x = gelu(self.normalised(x, f"layers.{i}.norm2", training))
        logits = max_pool(x, 3).flatten(1) @ self.parameters["head.weight"].T / CHANNELS[-1]
        return cross_entropy(logits, labels, SMOOTHING if training else 0.0)


# ---- optimizers -----------------------------------------------------------------------------------------------------


POLYNOMIALS = [step for step, _ in polar_squares.steps_for([3, 3, 3], 8e-4)[0]]


def orthogonalized(g, exact):
    if not g.any():
        return g
    u, s, vh = torch.linalg.svd(g, full_matrices=False)
    if exact:
        note_distance("rank", (s[-1] / s[0]).item())
        return u @ vh
    s = s / (polar_squares.SAFETY * (s**4).sum() ** 0.25)
    for polynomial in POLYNOMIALS:
        s = polar_squares.p(polynomial, s)
    return u * s @ vh


MUONS = ("muon", "normuon")


def norm_of(preset, role, shape):
    """Kind and factor: |x| = factor kind(x) on the matrix (m, n)."""
    m, n, kernel = shape[0], math.prod(shape[1:]), math.prod(shape[2:])
    if preset == "sign_descent":
        return "max_entry", 1
    if preset == "normalized_descent":
        return "euclidean", 1
    if role in ("hidden", "conv") and preset != "adamw":
        return "spectral", 1 / math.sqrt(max(1, m / n)) if preset in MUONS else math.sqrt(kernel * n / m)
    if preset in (*MUONS, "adamw"):
        return "adamw", 1
    return ("euclidean", 1 / math.sqrt(m)) if role == "vector" else ("max_entry", n)


def radius_of(preset, role, given):
    """t, and for scion the ball; what the presets say where nothing is given."""
    if "all" in given or preset == "deterministic_gluon":
        return given.get("all"), None
    if preset in MUONS:
        return given["hidden" if role in ("hidden", "conv") else "adamw"], None
    conv = given.get("conv", 0)
    own = given.get(role, {"head": 100 * conv, "vector": conv}.get(role))
    if preset == "unscion":
        return own, None
    if preset == "sphere":  # of vectors in a pure CNN too
        return own or (0.7 if role in ("embedding", "head") else given["factor"] * 0.45 * STEPS**-0.4), None
    return given["gamma" if "gamma" in given else "conv_gamma"] * own, own


class Optimizer:
    def __init__(self, model, preset, radii):
        self.model, self.preset = model, preset
        self.given = {key: float(value) for key, value in (pair.split("=") for pair in radii.split(","))}
        self.memory = {key: [torch.zeros_like(w), torch.zeros_like(w)] for key, w in model.parameters.items()}
        with torch.no_grad():
            for name, w in model.parameters.items():
                if self.sphere(name):
                    w *= self.sphere(name) / w.norm()

    def sphere(self, name):
        """|W|_F, the length of an orthogonal matrix in the norm; None where a layer stays on no sphere."""
        role, shape = self.model.roles[name], self.model.parameters[name].shape
        if self.preset != "sphere" or role not in ("hidden", "conv"):
            return None
        return math.sqrt(min(shape[0], math.prod(shape[1:]))) / norm_of(self.preset, role, shape)[1]

    @torch.no_grad()
    def step(self, k):
        multiplier = min(1.0, (STEPS - k) / (STEPS if self.preset == "sphere" else COOLDOWN))
        parameters = self.model.parameters
        if self.preset == "adamw":  # the trainer clips the length of all gradients to 1
            length = math.sqrt(sum((w.grad**2).sum().item() for w in parameters.values()))
            for w in parameters.values():
                w.grad *= min(1, 1 / (length + 1e-6))
        for name, w in parameters.items():
            if self.preset == "sgd":  # PyTorch's, where (1 - 0.9) all is the learning rate
                buffer = self.memory[name][0]
                buffer += w.grad - 0.1 * buffer
                w -= (1 - 0.9) * self.given["all"] * multiplier * buffer
                continue
            role = self.model.roles[name]
            kind, factor = norm_of(self.preset, role, w.shape)
            radius, ball = radius_of(self.preset, role, self.given)
            if kind == "adamw":
                self.adamw(w, self.memory[name], radius * multiplier, k)
                continue
            g = self.momentum(w.grad, self.memory[name]).reshape(w.shape[0], -1)
            direction, dual = self.lmo(g, kind)
            if self.preset == "normuon":
                direction = self.by_neurons(direction, self.memory[name])
            if radius is None:  # theorem 1
                radius = (dual / factor) / (self.given["L0"] + self.given["L1"] * dual / factor)
            t = radius * multiplier
            if self.sphere(name):
                w += t * self.sphere(name) * direction.reshape(w.shape) / direction.norm()
                w *= self.sphere(name) / w.norm()
                continue
            if ball:
                w *= 1 - t / ball
            w += t / factor * direction.reshape(w.shape)

    def momentum(self, gradient, memory):
        if self.preset == "deterministic_gluon":
            return gradient
        beta = 0.95 if self.preset in MUONS else 0.9
        memory[0] = beta * memory[0] + (1 - beta) * gradient
        return beta * memory[0] + (1 - beta) * gradient if self.preset in MUONS else memory[0]

    def by_neurons(self, direction, memory):
        """NorMuon's algorithm 1: rows divided by the root of their second moments, the length of the whole kept."""
        memory[1] = 0.95 * memory[1].reshape(len(direction), -1)[:, :1] + 0.05 * (direction**2).mean(1, keepdim=True)
        rows = torch.where(memory[1] > 0, direction / memory[1].sqrt(), direction)
        return rows * (direction.norm() / rows.norm() if rows.any() else 0)

    def lmo(self, g, kind):
        """The direction of the unscaled norm, and the dual norm."""
        if kind == "max_entry":
            return -g.sign(), g.abs().sum().item()
        if kind == "euclidean":
            return -g / g.norm(), g.norm().item()
        exact = self.preset == "deterministic_gluon"
        return -orthogonalized(g, exact), torch.linalg.svdvals(g).sum().item() if exact else None

    def adamw(self, w, memory, rate, k):
        memory[0] = 0.9 * memory[0] + 0.1 * w.grad
        memory[1] = 0.95 * memory[1] + 0.05 * w.grad**2
        first, second = memory[0] / (1 - 0.9 ** (k + 1)), memory[1] / (1 - 0.95 ** (k + 1))
        w *= 1 - rate * (0.1 if self.preset == "adamw" else 0)
        w -= rate * first / (second.sqrt() + 1e-8)


def curve(name, preset, radii, batches):
    """The loss before each step, then the validation loss after all of them."""
    distances.clear()
    model = NanoGpt() if name == "nanogpt" else Cnn()
    optimizer = Optimizer(model, preset, radii)
    batch = BATCH[name]
    examples = EXAMPLES if batches else FULL_BATCH_EXAMPLES[name]
    count = batches or examples // batch
    losses = []
    for k in range(STEPS):
        for w in model.parameters.values():
            w.grad = None
        mean = 0.0
        for i in range(count):
            first = ((k * count if batches else 0) + i) * batch % examples
            loss = model.loss(first, batch, training=True) / count
            loss.backward()
            mean += loss.item()
        losses.append(mean)
        optimizer.step(k)
    with torch.no_grad():
        return losses + [model.loss(VALIDATION, batch, training=False).item()]


def main():
    lines = ["# Written by loss_curves.py, an implementation of its own in float64. One run a line: model, preset,",
             "# radii, batches per step (0: the whole set), the losses of 30 steps, the validation loss after them."]
    for case in CASES:
        losses = curve(*case)
        print(*case, " ".join(f"{loss:.4f}" for loss in losses[::10]), distances, flush=True)
        for kind, distance in distances.items():
            assert distance > SMALLEST_DISTANCE[kind], f"{case} comes too close to a jump; choose other radii"
        lines.append(" ".join([*map(str, case), *(f"{loss:.8f}" for loss in losses)]))
    pathlib.Path(__file__).with_suffix(".txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
