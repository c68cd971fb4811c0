#!/usr/bin/env python3
"""Compares a step of gluon.Muon with one of torch.optim.Muon, on the hidden matrices of a GPT with 124M parameters.

    benchmarks/python_step.py [--device cuda] [--blocks 12] [--repeats 20] [--at-least 10]

Both start from the same weights and gradients and scale their updates in the same way. A step is timed from an idle
device until it is idle again, including the host; results are medians. With --at-least R the exit status is 1 if
torch's step takes less than R times as long as ours.
"""

import argparse
import statistics
import sys
import time


def stop(message):
    print(f"python_step: {message}", file=sys.stderr)
    sys.exit(2)


try:
    import torch

    import gluon

    gluon.Muon
except (ImportError, AttributeError):
    stop("needs torch and the package gluon; make python prints the PYTHONPATH")

WIDTH = 768
OURS = ["polar_squares:9", "bfloat16:newton_schulz:5"]  # the default, and the iteration of torch.optim.Muon
OPTIONS = {"lr": 0.02, "momentum": 0.95, "weight_decay": 0.0, "adjust_lr_fn": "original"}


def matrices(blocks, device):
    shapes = [*[(WIDTH, WIDTH)] * 4, (4 * WIDTH, WIDTH), (WIDTH, 4 * WIDTH)] * blocks
    generator = torch.Generator(device).manual_seed(0)
    layers = []
    for i, shape in enumerate(shapes):
        parameter = torch.nn.Parameter(torch.randn(shape, generator=generator, device=device) / WIDTH**0.5)
        parameter.grad = torch.randn(shape, generator=generator, device=device)
        layers.append((f"layers.{i}.weight", parameter))
    return layers


def milliseconds(optimizer, device, repeats):
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    times = []
    for repeat in range(repeats + 3):  # the first steps compile, allocate and capture
        wait()
        start = time.perf_counter()
        optimizer.step()
        wait()
        if repeat >= 3:
            times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--at-least", type=float, default=0)
    options = parser.parse_args()
    if options.blocks < 1 or options.repeats < 1:
        stop("--blocks and --repeats must be >= 1")
    if not hasattr(torch.optim, "Muon"):
        stop(f"torch.optim.Muon needs torch 2.9 or later, this is {torch.__version__}")
    if options.device == "cuda" and not torch.cuda.is_available():
        stop("no CUDA device; use --device cpu")

    machine = torch.cuda.get_device_name() if options.device == "cuda" else "the CPU"
    layers = matrices(options.blocks, options.device)
    entries = sum(parameter.numel() for _, parameter in layers)
    print(f"{len(layers)} matrices, {entries / 1e6:.1f}M entries, {machine}, torch {torch.__version__}, ms")
    ours = {}
    for name in OURS:
        optimizer = gluon.Muon(matrices(options.blocks, options.device), orthogonalizer=name, **OPTIONS)
        ours[name] = milliseconds(optimizer, options.device, options.repeats)
    reference = milliseconds(torch.optim.Muon([p for _, p in layers], **OPTIONS), options.device, options.repeats)
    print(f"{'optimizer':42} {'step':>9} {'torch / ours':>13}")
    for name, time_of in ours.items():
        print(f"gluon.Muon, {name:30} {time_of:9.3f} {reference / time_of:12.1f}x")
    print(f"{'torch.optim.Muon':42} {reference:9.3f}")
    ratio = reference / ours[OURS[0]]
    if ratio < options.at_least:
        print(f"python_step: {ratio:.1f}x is less than --at-least {options.at_least:g}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
