#!/usr/bin/python3
"""Compares the training speed of `gluon bench train` with the same model in PyTorch eager, in one run.

    benchmarks/eager_train.py [--threads N] [--rounds R] [--json]       after make build; `make bench-eager` does both

The reference is common PyTorch 1.13 code (peer_systems.py): modules, rotary tables, a masked softmax, F.cross_entropy,
and an optimizer that loops over the parameters: unconstrained Scion with five Polar Express steps (ours takes its
default, polar_squares:9), or torch.optim.AdamW with clipped gradients. Both sides have the same sizes, text, batch and
threads. Each run is a separate process, the sides alternate, and the results are medians. First, the reference loads
the weights of a short run of ours and must give our validation loss, which shows that both compute the same function.
"""
import argparse
import json
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
from peer_systems import NanoGpt, Scion

ROOT = pathlib.Path(__file__).resolve().parent.parent
TEXT = ROOT / "README.md"  # any text; it does not affect the time
VOCABULARY, CONTEXT, LAYERS, WIDTH, HEADS, BATCH = 256, 128, 4, 128, 4, 16  # nanogpt-tiny
PRESETS = {"unscion": "unconstrained Scion", "adamw": "torch.optim.AdamW"}
PARTS = ["forward", "backward", "optimizer"]
WARMUP_STEPS = 3  # as in gluon bench train


# The steps of polar_express:5, in float32.
ITERATION = [(8.20516041, -22.90193499, 16.46072491), (4.06639516, -2.86115409, 0.51839952),
             (3.9095949, -2.82335174, 0.52503698), (3.28556402, -2.41530196, 0.48529407),
             (2.30065202, -1.66890398, 0.41880731)], 1.01, torch.float32


def make_model():
    return NanoGpt(VOCABULARY, CONTEXT, LAYERS, WIDTH, HEADS, stream=torch.float32)


# ---- one run of each side -------------------------------------------------------------------------------------------


def windows(text, first, count):
    rows = np.stack([text[i * CONTEXT:(i + 1) * CONTEXT + 1] for i in range(first, first + count)])
    rows = torch.from_numpy(rows)
    return rows[:, :-1], rows[:, 1:].contiguous()


def read_text():
    return np.frombuffer(TEXT.read_bytes(), dtype=np.uint8).astype(np.int64)


def time_reference(preset, threads, steps):
    """The medians of gluon bench train: milliseconds of each part, and tokens/s of the whole step."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model, text = make_model(), read_text()
    if preset == "adamw":
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)
    else:
        optimizer = Scion(list(model.blocks.parameters()), [model.head.weight], ITERATION)
    times = {part: [] for part in PARTS}
    for step in range(WARMUP_STEPS + steps):
        clock = [time.perf_counter()]
        loss = model(*windows(text, step * BATCH % (len(text) // CONTEXT - BATCH), BATCH))
        loss.item()  # our trainer reads it as well
        clock.append(time.perf_counter())
        model.zero_grad(set_to_none=True)
        loss.backward()
        clock.append(time.perf_counter())
        if preset == "adamw":
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        clock.append(time.perf_counter())
        if step >= WARMUP_STEPS:
            for part, begin, end in zip(PARTS, clock, clock[1:]):
                times[part].append(end - begin)
    total = [sum(step) for step in zip(*times.values())]
    result = {part + "_ms": 1e3 * statistics.median(values) for part, values in times.items()}
    return {"tokens_per_second": BATCH * CONTEXT / statistics.median(total), "threads": threads, **result}


def run(command, threads):
    """The output of a process with this number of threads."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run([str(part) for part in command], env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"eager_train: '{' '.join(str(part) for part in command)}' failed")
    return done.stdout


def model_flags():
    sizes = {"layers": LAYERS, "width": WIDTH, "heads": HEADS, "seq": CONTEXT, "batch": BATCH}
    flags = ["--model", "nanogpt-tiny", "--device", "cpu", "--data", TEXT]
    return flags + [part for key, value in sizes.items() for part in ("--" + key, value)]


def measure(side, preset, options):
    if side == "ours":
        command = [options.program, "--threads", options.threads, "bench", "train", *model_flags(), "--preset", preset,
                   "--repeats", options.steps, "--json"]
    else:
        command = [sys.executable, __file__, "--side", preset, "--threads", options.threads, "--steps", options.steps]
    return json.loads(run(command, options.threads))


# ---- the same function ----------------------------------------------------------------------------------------------


def peer_name(name):
    """The reference's name of a tensor of our checkpoint."""
    for old, new in [("model/transformer.h.", "blocks."), ("model/transformer.wte", "head"), ("attn.", ""),
                     ("mlp.c_fc", "c_up"), ("mlp.c_proj", "c_down")]:
        name = name.replace(old, new)
    return name


def read_safetensors(path):
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    body = memoryview(bytearray(data[8 + length:]))
    tensors = {}
    for name, entry in header.items():
        if name.startswith("model/") and entry["dtype"] == "F32":
            begin, end = entry["data_offsets"]
            tensors[peer_name(name)] = torch.frombuffer(body[begin:end], dtype=torch.float32).view(entry["shape"])
    return tensors


def compare_functions(options):
    """Our validation loss and the reference's, with the weights of a short run of ours."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "run"
        run([options.program, "--threads", options.threads, "train", *model_flags(), "--steps", 10, "--out", out],
            options.threads)
        header, *rows = (line.split(",") for line in (out / "log.csv").read_text().split())
        ours = float(rows[-1][header.index("val")])
        (checkpoint,) = (out / "checkpoint").glob("*.safetensors")
        weights = read_safetensors(checkpoint)
    model, text = make_model(), read_text()
    model.load_state_dict(weights)
    count = (len(text) - 1) // CONTEXT  # the last tenth is for validation
    held_out = count // 10
    with torch.no_grad():
        reference = model(*windows(text, count - held_out, held_out)).item()
    if not abs(ours - reference) < 1e-4:
        sys.exit(f"eager_train: the sides differ: validation loss {ours} of ours, {reference} of the reference")
    return ours, reference


def main():
    parser = argparse.ArgumentParser(description="Compares our training speed with PyTorch eager")
    parser.add_argument("--program", default=ROOT / "build" / "gluon", type=pathlib.Path)
    parser.add_argument("--threads", default=len(os.sched_getaffinity(0)), type=int)
    parser.add_argument("--rounds", default=5, type=int, help="alternating runs of each side; the results are medians")
    parser.add_argument("--steps", default=20, type=int, help="timed steps of a run")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--side", choices=list(PRESETS), help=argparse.SUPPRESS)  # one run of the reference
    options = parser.parse_args()
    if options.side:
        print(json.dumps(time_reference(options.side, options.threads, options.steps)))
        return
    if not options.program.exists():
        sys.exit(f"eager_train: no program {options.program}; run make build")

    losses = compare_functions(options)
    results = []
    for preset, how in PRESETS.items():
        runs = {"ours": [], "reference": []}
        for _ in range(options.rounds):
            for side in runs:
                runs[side].append(measure(side, preset, options))
        median = {side: {key: statistics.median(one[key] for one in done)
                         for key in ["tokens_per_second"] + [part + "_ms" for part in PARTS]}
                  for side, done in runs.items()}
        ratio = median["ours"]["tokens_per_second"] / median["reference"]["tokens_per_second"]
        results.append({"preset": preset, "reference_optimizer": how, **median, "ratio": ratio})

    how = {"benchmark": "eager_train", "model": "nanogpt-tiny", "torch": torch.__version__, "threads": options.threads,
           "batch": BATCH, "context": CONTEXT, "rounds": options.rounds, "steps": options.steps,
           "validation_loss": dict(zip(["ours", "reference"], losses))}
    if options.json:
        print(json.dumps({**how, "presets": results}, indent=2))
        return
    print(f"training steps, nanogpt-tiny, batch {BATCH} x {CONTEXT}, {options.threads} threads, PyTorch "
          f"{torch.__version__} eager; medians of {options.rounds} alternating runs of {options.steps} steps\n"
          f"same weights, validation loss: ours {losses[0]:.6f}, reference {losses[1]:.6f}\n")
    print(f"{'preset':<10}{'side':<12}{'tokens/s':>10}{'forward':>10}{'backward':>10}{'optimizer':>11}  ms")
    for result in results:
        for side in ["ours", "reference"]:
            row = result[side]
            print(f"{result['preset']:<10}{side:<12}{row['tokens_per_second']:>10.0f}{row['forward_ms']:>10.1f}"
                  f"{row['backward_ms']:>10.1f}{row['optimizer_ms']:>11.2f}")
        print(f"{'':<10}ratio ours/reference {result['ratio']:.2f}\n")


if __name__ == "__main__":
    main()
