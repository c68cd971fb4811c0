"""Real runs of `gluon train` with the smallest model: start them, look at them, compare them byte for byte."""

import csv
import json
import os
import random
import struct
import subprocess
import time
from pathlib import Path

STEPS, SAVE_EVERY, EVAL_EVERY, SMOOTHNESS_EVERY = 240, 10, 15, 4
NOBODY = 65534
PATIENCE = 120  # seconds after which a run hangs


class Lost(Exception):
    """A run that could not be continued, or that hangs."""


def write_shard(path, seed=7, count=60_000):
    """Tokens below 256 with some structure, as a FineWeb shard."""
    draw = random.Random(seed)
    tokens = [0]
    for _ in range(count - 1):
        tokens.append((tokens[-1] * 5 + draw.randrange(4)) % 256)
    header = [20240520, 1, count] + [0] * 253
    path.write_bytes(struct.pack("<256i", *header) + struct.pack(f"<{count}H", *tokens))


class Run:
    """The processes that work on one run: PLACE/run, with the data PLACE/tokens.bin."""

    def __init__(self, program, place, ranks=0, variables=None):
        self.program, self.place, self.ranks, self.variables = program, Path(place), ranks, variables or {}
        self.folder, self.data, self.output = (self.place / name for name in ("run", "tokens.bin", "output.txt"))
        self.user = None
        self.resumed_at = []
        self.process = None

    def flags(self):
        return ["--model", "nanogpt-tiny", "--layers", "1", "--width", "32", "--heads", "2", "--seq", "32",
                "--batch", "4", "--vocabulary", "256", "--data", "tokens.bin", "--steps", str(STEPS),
                "--save-every", str(SAVE_EVERY), "--eval-every", str(EVAL_EVERY),
                "--smoothness-every", str(SMOOTHNESS_EVERY)]

    def command(self, resume):
        command = [self.program, "train", "--threads", "1", "--out", "run"]
        command += ["--resume"] if resume else self.flags()
        if self.ranks:
            command += ["--ranks", str(self.ranks), "--rank-timeout", "4"]
        return command

    def start(self, resume=False, **more):
        """Starts a process in PLACE, as its user would: paths are the same in all runs."""
        self.place.mkdir(exist_ok=True)
        if not self.data.exists():
            write_shard(self.data)
        with open(self.output, "ab") as output:
            self.process = subprocess.Popen(self.command(resume), stdout=output, stderr=output, user=self.user,
                                            cwd=self.place,
                                            env={**os.environ, **self.variables}, **more)
        return self.process

    def wait(self, process=None):
        process = process or self.process
        try:
            return process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise Lost(f"still running after {PATIENCE} s") from None

    def alive(self):
        return self.process.poll() is None

    def rows(self):
        try:
            return max(0, (self.folder / "log.csv").read_bytes().count(b"\n") - 1)
        except OSError:
            return 0

    def await_rows(self, count):
        """Until the log has so many rows. False when the run ends before."""
        deadline = time.monotonic() + PATIENCE
        while self.rows() < count:
            if not self.alive():
                return False
            if time.monotonic() > deadline:
                self.process.kill()
                raise Lost(f"{self.rows()} steps {PATIENCE} s after a start, expected {count}")
            time.sleep(0.002)
        return True

    def await_save(self):
        """Until a checkpoint is being written. False when none was seen."""
        deadline = time.monotonic() + PATIENCE
        while self.alive() and time.monotonic() < deadline:
            try:
                if any(".safetensors" in name and not name.endswith(".safetensors")
                       for name in os.listdir(self.folder / "checkpoint")):
                    return True
            except OSError:
                pass
        return False

    def complete(self):
        return (self.folder / f"checkpoint/step-{STEPS:08d}.safetensors").exists()

    def note_resume(self):
        """Remembers the step at which the next process begins."""
        try:
            latest = (self.folder / "checkpoint/latest").read_text()
            self.resumed_at.append(int("".join(filter(str.isdigit, latest.split(".")[0]))))
        except OSError:
            self.resumed_at.append(0)

    def finish(self):
        """Continues the run to its end, as its user would: --resume, or the first command when there is no run yet."""
        resume = (self.folder / "config.toml").exists()
        if resume:
            self.note_resume()
        self.start(resume)
        code = self.wait()
        if code != 0:
            tail = self.output.read_text(errors="replace").strip().splitlines()[-1:]
            raise Lost(f"{'--resume' if resume else 'starting again'} ended with {code}: {' '.join(tail)}")
        status = json.loads((self.folder / "status.json").read_text())
        if (status["state"], status["step"]) != ("finished", STEPS):
            raise Lost(f"the status of the finished run is {status}")

    def children(self):
        """The processes of the ranks, in their order; empty while they start."""
        pid = self.process.pid
        try:
            found = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        except OSError:
            return []
        return found if len(found) == self.ranks else []


def table(path, dropped=()):
    """The cells of a CSV file without the columns `dropped`."""
    with open(path, newline="") as file:
        rows = list(csv.reader(file))
    keep = [i for i, name in enumerate(rows[0]) if name not in dropped]
    return [[row[i] for i in keep] for row in rows]


def different_bytes(one, other):
    return sum(a != b for a, b in zip(one, other)) + abs(len(one) - len(other))


def text_of(rows):
    return "\n".join(map(",".join, rows)).encode()


def difference(run, whole):
    """How many bytes of a finished run differ from the undisturbed one: the last checkpoint, the log without its times,
    and the smoothness samples. A sample whose two steps lie on both sides of a resume is the documented exception."""
    last = f"checkpoint/step-{STEPS:08d}.safetensors"
    bytes_off = different_bytes((run.folder / last).read_bytes(), (whole.folder / last).read_bytes())
    times = ("seconds", "optimizer")
    mine, theirs = (table(each.folder / "log.csv", times) for each in (run, whole))
    bytes_off += different_bytes(text_of(mine), text_of(theirs))
    mine, theirs = (table(each.folder / "smoothness.csv") for each in (run, whole))
    lost = set(map(str, run.resumed_at)) - {row[0] for row in mine}
    theirs = [row for row in theirs if row[0] not in lost]
    return bytes_off + different_bytes(text_of(mine), text_of(theirs))
