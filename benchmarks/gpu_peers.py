#!/usr/bin/env python3
"""Compares our optimizer and training steps with other systems on one CUDA GPU, in one run.

    benchmarks/gpu_peers.py [--program build/gluon] [--repeats 20] [--only step|train] [--json FILE]

Our side is `gluon bench step` and `gluon bench train`, each run before its peers allocate memory. The peers are
PyTorch's optimizers and short versions (peer_systems.py) of common implementations:

    stacked Polar Express   foreach momentum, matrices stacked by shape, five compiled steps in bfloat16
    eager Scion             one matrix at a time, five Jordan steps in bfloat16; sign for the embedding
    compiled NanoGPT        the paper's model under bfloat16 autocast and torch.compile, with that Scion, and with the
                            stacked Polar Express and the same sign

Optimizer steps are timed by CUDA events on an idle GPU, our training steps by the host's clock; results are medians.
Our forward+backward time waits after each of the two, the whole step does not. The error is the root mean square, over
one matrix of each shape, of |P - U V^T|_F / sqrt(min(m, n)), U V^T from a float64 SVD.
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
    from torch import nn
except ImportError:
    stop("this python3 has no PyTorch; the peers need PyTorch 2.9 or later with CUDA")

from peer_systems import JORDAN, POLAR_EXPRESS, SAFETY, NanoGpt, Scion, StackedPolarExpress, orthogonalize

ROOT = pathlib.Path(__file__).resolve().parent.parent
START = time.monotonic()
VOCABULARY, CONTEXT, LAYERS, WIDTH, HEADS, BATCH = 50304, 1024, 12, 768, 6, 32  # nanogpt-124m
EMBEDDING_FLOOR = 1e3 * VOCABULARY * WIDTH * 20 / 4.2e12  # ms
TRAIN_FLOOR = 36
STACKED, MUON = "torch.compile, stacked Polar Express", "torch.optim.Muon"
SCION_TRAINING = "torch.compile, eager Scion"
NOTES = f"""\
Floors, with products at 733 TFLOP/s, half computed where symmetric, and bytes at 4.2 TB/s: gpt124m 1.3 + 0.4 ms,
gpt1b3 38 ms of products, embedding {EMBEDDING_FLOOR:.2f} ms of bytes, training {TRAIN_FLOOR} ms of products.
Peers use torch.set_float32_matmul_precision('high') and, like ours, a bfloat16 residual stream. AdamW is listed for
scale. The error of torch.optim.Muon is that of Jordan's five steps in bfloat16."""


def gpt_shapes(blocks, width):
    return [*[(width, width)] * 4, (4 * width, width), (width, 4 * width)] * blocks


STEPS = {"gpt124m": (gpt_shapes(12, 768), 1.3 + 0.4), "gpt1b3": (gpt_shapes(24, 2048), 38),
         "embedding": ([(VOCABULARY, WIDTH)], EMBEDDING_FLOOR)}


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


def run_ours(options, benchmark, *arguments):
    """The JSON of our program."""
    command = [options.program, "bench", benchmark, *arguments, "--device", "cuda", "--repeats", options.repeats]
    done = subprocess.run([*map(str, command), "--json"], capture_output=True, text=True)
    print(done.stderr, end="", file=sys.stderr)  # contains warnings about slow paths
    if done.returncode != 0:
        raise RuntimeError(done.stderr or done.stdout)
    return json.loads(done.stdout)


def row(what, system, ms=None, **more):
    return {"what": what, "system": system, "ms": ms, **more}


def attempt(what, system, measure):
    """The rows of measure(), or one row with the error: a failing system does not end the run."""
    say(f"{system}: {what}")
    try:
        return measure()
    except Exception as error:
        return [row(what, system, unavailable=(str(error).strip().splitlines() or ["no message"])[0])]
    finally:
        clear()


def exact_polar(g):
    if g.shape[0] < g.shape[1]:
        return exact_polar(g.T).T
    q, r = torch.linalg.qr(g.double())
    u, _, vt = torch.linalg.svd(r.cpu())
    return q @ (u @ vt).to(q.device)


def polar_errors(shapes, device):
    """Errors of the peers' iterations on one random matrix of each shape."""
    iterations = {STACKED: (POLAR_EXPRESS, SAFETY), MUON: (JORDAN, 1)}
    squares = {name: [] for name in iterations}
    for rows, columns in sorted(set(shapes)):
        g = torch.randn(rows, columns, device=device)
        exact = exact_polar(g)
        for name, (coefficients, safety) in iterations.items():
            difference = orthogonalize(g, coefficients, safety).double() - exact
            squares[name].append(difference.square().sum().item() / min(rows, columns))
    return {name: math.sqrt(statistics.mean(values)) for name, values in squares.items()}


def measure_step(model, options):
    shapes, floor = STEPS[model]
    what = f"step, {model}"

    def ours():
        done = run_ours(options, "step", "--model", model)
        error = None if model == "embedding" else done["errors"][0]["gaussian"]
        return [row(what, "ours", done["ours"]["ms"], floor=floor, error=error)]

    rows = attempt(what, "ours", ours)
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
    hidden, embedding = list(model.blocks.parameters()), [model.head.weight]
    tokens, targets = torch.randint(256, (2, BATCH, CONTEXT), device="cuda")  # bytes, like ours

    def compute_gradients():
        model.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = compiled(tokens, targets)
        loss.backward()

    def whole_ms(optimizers):
        def step():
            compute_gradients()
            for optimizer in optimizers:
                optimizer.step()

        torch.cuda.reset_peak_memory_stats()
        return gpu_ms(step, repeats), torch.cuda.max_memory_allocated() / 2**30

    gradients_ms = gpu_ms(compute_gradients, repeats)
    rows = training_rows(SCION_TRAINING, gradients_ms, *whole_ms([Scion(hidden, embedding)]))
    clear()
    return rows + training_rows(STACKED, gradients_ms,
                                *whole_ms([StackedPolarExpress(hidden), Scion([], embedding)]))[1:]


def measure_training(options):
    def ours():
        done = run_ours(options, "train", "--model", "nanogpt-124m", "--batch", BATCH, "--seq", CONTEXT)
        peak = done.get("gpu_peak_bytes")
        return training_rows("ours", done["forward_ms"] + done["backward_ms"],
                             1e3 * BATCH * CONTEXT / done["tokens_per_second"], peak and peak / 2**30)

    rows = attempt("training, whole step", "ours", ours)
    rows += attempt("training, whole step", SCION_TRAINING, lambda: time_peer_training(options.repeats))
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
    parser = argparse.ArgumentParser(description="Compares our steps with other systems on one CUDA GPU")
    parser.add_argument("--program", default=ROOT / "build" / "gluon", type=pathlib.Path)
    parser.add_argument("--repeats", default=20, type=int, help="timed steps per system; the result is the median")
    parser.add_argument("--only", choices=["step", "train"])
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="also write the rows to FILE")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        stop(f"no CUDA GPU is available to PyTorch {torch.__version__}")
    if options.repeats < 1:
        stop(f"--repeats must be >= 1, got {options.repeats}")
    if not options.program.is_file():
        stop(f"no program {options.program}; run make build")
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
    if any(one["system"] == "ours" and one["ms"] is None for one in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
