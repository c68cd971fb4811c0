#!/usr/bin/env python3
"""Records the momenta of benchmarks/momenta.safetensors, on which `gluon bench step` measures exactness.

    benchmarks/record_momenta.py TEXT [--program build/gluon] [--out benchmarks/momenta.safetensors]

Trains a byte model (4 blocks, 256 wide) on TEXT for 150 steps, about two minutes, and keeps the momenta of five matrices
of its last checkpoint: from the first, a middle and the last block, square, tall and wide. The committed file is from the
first 10 MB of an English Wikipedia text.
"""
import argparse
import json
import pathlib
import struct
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PREFIX = "optimizer/momentum/transformer.h."
KEPT = ["0.attn.c_q.weight", "0.attn.c_v.weight", "3.attn.c_proj.weight", "1.mlp.c_fc.weight", "3.mlp.c_proj.weight"]
TRAIN = ["--layers", "4", "--width", "256", "--heads", "4", "--steps", "150", "--schedule", "constant",
         "--orthogonalizer", "polar_express:8", "--eval-every", "150", "--save-every", "150"]


def read(path):
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8:8 + length]), data[8 + length:]


def write(path, header, data):
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/gluon")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "benchmarks/momenta.safetensors")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(folder) / "run"
        subprocess.run([options.program, "train", "--data", options.text, *TRAIN, "--out", run], check=True)
        header, data = read(run / "checkpoint" / (run / "checkpoint" / "latest").read_text().strip())
    kept, pieces, end = {}, [], 0
    for name in KEPT:
        entry = header[PREFIX + name]
        begin, stop = entry["data_offsets"]
        pieces.append(data[begin:stop])
        kept["momentum/" + name] = {**entry, "data_offsets": [end, end + stop - begin]}
        end += stop - begin
    write(options.out, kept, b"".join(pieces))
    print(f"{options.out}: {len(KEPT)} momenta, {options.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
