#!/usr/bin/env python3
"""Records tests/lmo/orthogonalize/late_spectra.safetensors: singular values of momenta late in real training.

    benchmarks/record_spectra.py TEXT [--program build/gluon]

Trains a byte model (4 blocks, 256 wide) on TEXT for 320 steps and reads its checkpoints of the last 84, every second
one, while the radii go to 0. Of each of the 24 hidden matrices it keeps 64 singular values: the largest, the smallest
and those at equal distances between them. The committed file is from the first 10 MB of an English Wikipedia text.
"""
import argparse
import pathlib
import subprocess
import tempfile
import time

import numpy

from record_momenta import PREFIX, ROOT, read, write

STEPS, LATE, KEPT = 320, 84, 64
TRAIN = ["--layers", "4", "--width", "256", "--heads", "4", "--steps", str(STEPS), "--save-every", "2",
         "--eval-every", str(STEPS)]


def spectra(checkpoint):
    header, data = read(checkpoint)
    for name, entry in header.items():
        if not name.startswith(PREFIX):
            continue
        begin, end = entry["data_offsets"]
        momentum = numpy.frombuffer(data[begin:end], numpy.float32).reshape(entry["shape"])
        values = numpy.linalg.svd(momentum.astype(numpy.float64), compute_uv=False)
        yield values[numpy.linspace(0, len(values) - 1, KEPT).round().astype(int)].astype(numpy.float32)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/gluon")
    options = parser.parse_args()
    rows, seen = [], set()
    with tempfile.TemporaryDirectory() as folder:
        run, links = pathlib.Path(folder) / "run", pathlib.Path(folder) / "late"
        links.mkdir()
        train = subprocess.Popen([options.program, "train", "--data", options.text, *TRAIN, "--out", run])
        while train.poll() is None:  # the program keeps the newest checkpoints only
            for file in run.glob("checkpoint/*.safetensors"):
                step = int("".join(filter(str.isdigit, file.stem)))
                if step > STEPS - LATE and step not in seen:
                    (links / file.name).hardlink_to(file)
                    seen.add(step)
            time.sleep(0.02)
        for file in sorted(links.iterdir()):
            rows.extend(spectra(file))
    table = numpy.stack(rows)
    out = ROOT / "tests/lmo/orthogonalize/late_spectra.safetensors"
    write(out, {"singular_values": {"dtype": "F32", "shape": list(table.shape), "data_offsets": [0, table.nbytes]}},
          table.tobytes())
    print(f"{out}: {len(rows)} spectra of {len(seen)} steps, {out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
