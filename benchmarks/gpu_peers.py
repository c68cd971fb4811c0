#!/usr/bin/env python3
"""Optimizer and training steps of ours beside other systems on one CUDA GPU, measured in one run.

    benchmarks/gpu_peers.py [--program build/gluon] [--repeats 20] [--only step|train] [--json FILE]

Ours are runs of `gluon bench step` and `gluon bench train`, each before its peers have taken memory. The peers are
PyTorch's own optimizers and short versions, written here, of what people run:

    stacked Polar Express   foreach momentum, matrices stacked by shape, five compiled steps in bfloat16
    eager Scion             one matrix at a time, five Jordan steps in bfloat16; sign for the embedding
    compiled NanoGPT        the paper's model under bfloat16 autocast and torch.compile, with that Scion

Optimizer steps are timed by CUDA events with the GPU idle before, training steps of ours by the clock; medians count.
Our forward+backward waits after each of the two, the whole step does not. The error is the root mean square, over one
matrix of each shape, of |P - U V^T|_F / sqrt(min(m, n)), U V^T from a float64 SVD.
"""
import argparse
import datetime
import gc
import json
import math
import pathlib
import statistics
import subprocess
import sys
import time


def stop(message):
    print(f"gpu_peers: {message}", file=sys.stderr)
    sys.exit(2)


try:
    import torch
    import torch.nn.functional as F
    from torch import nn
except ImportError:
    stop("this python3 has no PyTorch; the peers need PyTorch 2.9 or later with CUDA")

ROOT = pathlib.Path(__file__).resolve().parent.parent
START = time.monotonic()
VOCABULARY, CONTEXT, LAYERS, WIDTH, HEADS, BATCH = 50304, 1024, 12, 768, 6, 32  # nanogpt-124m
EMBEDDING_FLOOR = 1e3 * VOCABULARY * WIDTH * 20 / 4.2e12  # ms, as the other floors
TRAIN_FLOOR = 36
STACKED, MUON = "torch.compile, stacked Polar Express", "torch.optim.Muon"
PEER_TRAINING = "torch.compile, eager Scion"
NOTES = f"""\
Floors, with products at 733 TFLOP/s, half computed where symmetric, and bytes at 4.2 TB/s: gpt124m 1.3 + 0.4 ms,
gpt1b3 38 ms of products, embedding {EMBEDDING_FLOOR:.2f} ms of bytes, training {TRAIN_FLOOR} ms of products.
Peers have torch.set_float32_matmul_precision('high') and, as ours, a bfloat16 residual stream. AdamW is there for
scale. The error beside torch.optim.Muon is that of Jordan's five steps in bfloat16."""


def gpt_shapes(blocks, width):
    return [*[(width, width)] * 4, (4 * width, width), (width, 4 * width)] * blocks


STEPS = {"gpt124m": (gpt_shapes(12, 768), 1.3 + 0.4), "gpt1b3": (gpt_shapes(24, 2048), 38),
         "embedding": ([(VOCABULARY, WIDTH)], EMBEDDING_FLOOR)}


# ---- orthogonalization ------------------------------------------------------------------------------------------

JORDAN = [(3.4445, -4.7750, 2.0315)] * 5
SAFETY = 1.01
POLAR_EXPRESS = [(a / SAFETY, b / SAFETY**3, c / SAFETY**5) for a, b, c in [
    (8.28721201814563, -23.595886519098837, 17.300387312530933),
    (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
    (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
    (3.3184196573706015, -2.488488024314874, 0.51004894012372),
    (2.300652019954817, -1.6689039845747493, 0.4188073119525673)]]


def is_tall(x):
    return x.shape[-2] > x.shape[-1]


def iterate(x, coefficients, safety):
    """The quintic iteration for x (..., k, l), k <= l, in its precision."""
    x = x / (x.float().square().sum((-2, -1), keepdim=True).sqrt() * safety + 1e-7).to(x.dtype)
    for a, b, c in coefficients:
        gram = x @ x.mT
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return x


def orthogonalize(g, coefficients, safety):
    """One matrix in bfloat16."""
    x = g.bfloat16()
    return iterate(x.mT, coefficients, safety).mT if is_tall(x) else iterate(x, coefficients, safety)


def orthogonalize_stacks(*stacks):
    """Polar Express of stacks (b, m, n) and (b, n, m) as one; each comes back in its own layout, float32."""
    x = torch.cat([stack.mT if is_tall(stack) else stack for stack in stacks])
    parts = iterate(x, POLAR_EXPRESS, SAFETY).split([stack.shape[0] for stack in stacks])
    return [(part.mT if is_tall(stack) else part).float().contiguous() for stack, part in zip(stacks, parts)]


def exact_polar(g):
    if g.shape[0] < g.shape[1]:
        return exact_polar(g.T).T
    q, r = torch.linalg.qr(g.double())
    u, _, vt = torch.linalg.svd(r.cpu())
    return q @ (u @ vt).to(q.device)


def polar_errors(shapes, device):
    """Errors of the peers' two iterations, over one random matrix of each shape."""
    iterations = {STACKED: (POLAR_EXPRESS, SAFETY), MUON: (JORDAN, 1)}
    squares = {name: [] for name in iterations}
    for rows, columns in sorted(set(shapes)):
        g = torch.randn(rows, columns, device=device)
        exact = exact_polar(g)
        for name, (coefficients, safety) in iterations.items():
            difference = orthogonalize(g, coefficients, safety).double() - exact
            squares[name].append(difference.square().sum().item() / min(rows, columns))
    return {name: math.sqrt(statistics.mean(values)) for name, values in squares.items()}


# ---- optimizers -------------------------------------------------------------------------------------------------


class StackedPolarExpress:
    def __init__(self, parameters, radius=0.02, beta=0.95):
        self.radius, self.beta = radius, beta
        self.parameters, self.momenta, self.inputs, self.groups = {}, {}, {}, {}
        for parameter in parameters:
            self.parameters.setdefault(tuple(parameter.shape), []).append(parameter)
        for shape, same in self.parameters.items():
            self.momenta[shape] = [torch.zeros_like(parameter) for parameter in same]
            self.inputs[shape] = torch.empty(len(same), *shape, dtype=torch.bfloat16, device=same[0].device)
            self.groups.setdefault(tuple(sorted(shape)), []).append(shape)
        self.orthogonalize = torch.compile(orthogonalize_stacks, dynamic=False)

    @torch.no_grad()
    def step(self):
        for shape, momenta in self.momenta.items():
            gradients = [parameter.grad for parameter in self.parameters[shape]]
            torch._foreach_lerp_(momenta, gradients, 1 - self.beta)
            ahead = torch._foreach_lerp(gradients, momenta, self.beta)
            torch._foreach_copy_(list(self.inputs[shape].unbind()), ahead)
        for shapes in self.groups.values():
            directions = self.orthogonalize(*[self.inputs[shape] for shape in shapes])
            for shape, stack in zip(shapes, directions):
                torch._foreach_add_(self.parameters[shape], list(stack.unbind()), alpha=-self.radius)


class Scion:
    def __init__(self, hidden, embedding):
        self.hidden, self.embedding = hidden, embedding
        self.momenta = {parameter: torch.zeros_like(parameter) for parameter in [*hidden, *embedding]}

    @torch.no_grad()
    def step(self):
        for parameter in self.hidden:
            momentum = self.momenta[parameter].lerp_(parameter.grad, 0.1)
            rows, columns = parameter.shape
            parameter.add_(orthogonalize(momentum, JORDAN, 1), alpha=-0.018 * math.sqrt(rows / columns))
        for parameter in self.embedding:
            momentum = self.momenta[parameter].lerp_(parameter.grad, 0.1)
            parameter.add_(momentum.sign(), alpha=-1.08 / parameter.shape[1])


# ---- the model --------------------------------------------------------------------------------------------------


def rms_norm(x):
    y = x.float()
    return (y * torch.rsqrt(y.square().mean(-1, keepdim=True) + torch.finfo(y.dtype).eps)).to(x.dtype)


def rotate(x, cos, sin):
    x1, x2 = x.chunk(2, -1)
    return torch.cat([x1 * cos + x2 * sin, x2 * cos - x1 * sin], -1).to(x.dtype)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_q, self.c_k, self.c_v, self.c_proj = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.c_up = nn.Linear(width, 4 * width, bias=False)
        self.c_down = nn.Linear(4 * width, width, bias=False)
        for layer in (self.c_proj, self.c_down):
            nn.init.zeros_(layer.weight)

    def forward(self, x, cos, sin):
        y = rms_norm(x)
        q, k, v = [c(y).unflatten(-1, (self.heads, -1)) for c in (self.c_q, self.c_k, self.c_v)]
        q, k = [rotate(rms_norm(z), cos, sin) for z in (q, k)]
        y = F.scaled_dot_product_attention(*[z.transpose(1, 2) for z in (q, k, v)], is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).flatten(2))
        return x + self.c_down(2 * F.relu(self.c_up(rms_norm(x))).square())


class NanoGpt(nn.Module):
    def __init__(self, vocabulary, context, layers, width, heads, stream=torch.bfloat16):
        super().__init__()
        self.stream = stream
        self.head = nn.Linear(width, vocabulary, bias=False)  # and the embedding
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        dimension = width // heads
        frequencies = 10000.0 ** (-torch.arange(0, dimension, 2).float() / dimension)
        angles = torch.outer(torch.arange(context).float(), frequencies)[:, None, :]
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, tokens, targets):
        x = F.embedding(tokens, self.head.weight).to(self.stream)
        for block in self.blocks:
            x = block(x, self.cos[:tokens.shape[1]], self.sin[:tokens.shape[1]])
        return F.cross_entropy(self.head(rms_norm(x)).float().flatten(0, 1), targets.flatten())


# ---- measuring --------------------------------------------------------------------------------------------------


def say(text):
    print(f"[{time.monotonic() - START:4.0f} s] {text}", file=sys.stderr, flush=True)


def clear():
    gc.collect()
    torch.cuda.empty_cache()


def gpu_ms(run, repeats, warmup=3):
    times = []
    for _ in range(warmup + repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times[warmup:])


def first_line(text):
    return (text.strip().splitlines() or ["no message"])[0]


def run_ours(options, benchmark, *arguments):
    """The JSON of our program, or {"unavailable": its message}."""
    command = [options.program, "bench", benchmark, *arguments, "--device", "cuda", "--repeats", options.repeats]
    command = [str(part) for part in command]
    say("ours: " + " ".join(command[1:]))
    done = subprocess.run([*command, "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        return {"unavailable": first_line(done.stderr or done.stdout)}
    return json.loads(done.stdout)


def row(what, system, ms=None, **more):
    return {"what": what, "system": system, "ms": ms, **more}


def attempt(what, system, measure):
    """The rows of measure(), or one that says why there are none: a peer that fails does not end the run."""
    say(f"{system}: {what}")
    try:
        return measure()
    except Exception as error:
        return [row(what, system, unavailable=first_line(str(error)))]
    finally:
        clear()


def measure_step(model, options):
    shapes, floor = STEPS[model]
    what = f"step, {model}"
    done = run_ours(options, "step", "--model", model)
    if "unavailable" in done:
        rows = [row(what, "ours", **done)]
    else:
        error = None if model == "embedding" else done["ours"]["error"]
        rows = [row(what, "ours", done["ours"]["ms"], floor=floor, error=error)]
    parameters = [nn.Parameter(0.02 * torch.randn(shape, device="cuda")) for shape in shapes]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    adamw = {"torch.optim.AdamW(fused)": lambda: torch.optim.AdamW(parameters, fused=True)}
    if model == "embedding":
        errors = {}
        peers = {"eager Scion, sign": lambda: Scion([], parameters), **adamw}
    else:
        say(f"errors of the peers: {model}")
        errors = polar_errors(shapes, "cuda")
        peers = {STACKED: lambda: StackedPolarExpress(parameters), MUON: lambda: torch.optim.Muon(parameters),
                 **adamw}
    for system, make in peers.items():
        rows += attempt(what, system, lambda: [row(what, system, gpu_ms(make().step, options.repeats), floor=floor,
                                                   error=errors.get(system))])
    return rows


def training_rows(system, gradients_ms, whole_ms, gib):
    return [row("training, forward+backward", system, gradients_ms, floor=TRAIN_FLOOR),
            row("training, whole step", system, whole_ms, floor=TRAIN_FLOOR, gib=gib,
                tokens_per_second=1e3 * BATCH * CONTEXT / whole_ms)]


def time_peer_training(repeats):
    torch.manual_seed(0)
    model = NanoGpt(VOCABULARY, CONTEXT, LAYERS, WIDTH, HEADS).cuda()
    compiled = torch.compile(model, dynamic=False)
    optimizer = Scion(list(model.blocks.parameters()), [model.head.weight])
    tokens, targets = torch.randint(VOCABULARY, (2, BATCH, CONTEXT), device="cuda")

    def compute_gradients():
        model.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = compiled(tokens, targets)
        loss.backward()

    def whole_step():
        compute_gradients()
        optimizer.step()

    gradients_ms = gpu_ms(compute_gradients, repeats)
    torch.cuda.reset_peak_memory_stats()
    whole_ms = gpu_ms(whole_step, repeats)
    return training_rows(PEER_TRAINING, gradients_ms, whole_ms, torch.cuda.max_memory_allocated() / 2**30)


def measure_training(options):
    done = run_ours(options, "train", "--model", "nanogpt-124m", "--batch", BATCH, "--seq", CONTEXT)
    if "unavailable" in done:
        rows = [row("training, whole step", "ours", **done)]
    else:
        peak = done.get("gpu_peak_bytes")
        rows = training_rows("ours", done["forward_ms"] + done["backward_ms"],
                             1e3 * BATCH * CONTEXT / done["tokens_per_second"], peak and peak / 2**30)
    rows += attempt("training, whole step", PEER_TRAINING, lambda: time_peer_training(options.repeats))
    return sorted(rows, key=lambda one: one["what"])  # stable: ours stays first


# ---- the table --------------------------------------------------------------------------------------------------


def print_table(rows):
    ours = {one["what"]: one["ms"] for one in rows if one["system"] == "ours" and one["ms"] is not None}
    print(f"{'what':<27}{'system':<38}      ms ours faster x floor  error tokens/s   GiB")
    previous = rows[0]["what"]
    for one in rows:
        if one["what"] != previous:
            print()
        previous = one["what"]
        line = f"{one['what']:<27}{one['system']:<38}"
        if one["ms"] is None:
            print(f"{line}  not available: {one['unavailable']}")
            continue
        ratio = f"{one['ms'] / ours[one['what']]:.2f} x" if one["what"] in ours else ""
        line += f"{one['ms']:>8.2f}{ratio:>12}{one['ms'] / one['floor']:>8.2f}"
        for key, width, digits in [("error", 7, 3), ("tokens_per_second", 9, 0), ("gib", 6, 1)]:
            line += " " * width if one.get(key) is None else f"{one[key]:{width}.{digits}f}"
        print(line.rstrip())


def main():
    parser = argparse.ArgumentParser(description="Ours beside other systems on one CUDA GPU")
    parser.add_argument("--program", default=ROOT / "build" / "gluon", type=pathlib.Path)
    parser.add_argument("--repeats", default=20, type=int, help="timed steps of each system; the median counts")
    parser.add_argument("--only", choices=["step", "train"])
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the rows there too")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        stop(f"no CUDA GPU is available to PyTorch {torch.__version__}")
    if not options.program.is_file():
        stop(f"no program {options.program}; make build")
    options.program = options.program.resolve()
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(0)

    rows = []
    if options.only != "train":
        for model in STEPS:
            rows += measure_step(model, options)
            clear()
    if options.only != "step":
        rows += measure_training(options)
    say("done")

    version = subprocess.run([str(options.program), "--version"], capture_output=True, text=True).stdout.strip()
    how = {"gluon": version, "torch": torch.__version__, "cuda": torch.version.cuda,
           "gpu": torch.cuda.get_device_name(), "date": datetime.date.today().isoformat(),
           "repeats": options.repeats}
    print_table(rows)
    print(f"\n{NOTES}\nGluon {how['gluon']}, PyTorch {how['torch']}, CUDA {how['cuda']}, {how['gpu']}, "
          f"{how['date']}, medians of {how['repeats']}")
    if options.json:
        options.json.write_text(json.dumps({"benchmark": "gpu_peers", **how, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
