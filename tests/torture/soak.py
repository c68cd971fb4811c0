#!/usr/bin/env python3
"""A long run of the smallest model with a checkpoint every 100 steps, the recorder on, and `gluon watch` asked for the
page's data every second: soak.py PROGRAM [--steps 200000]

Prints the throughput of the first and the last tenth, and the memory of both processes, and exits 1 when the throughput
fell by more than 3 % or the memory grew by more than 5 %. Throughput is in steps per second of processor time, which
waiting for other programs does not count. They still slow a processor down (caches, clock): the same few milliseconds
of arithmetic are timed every second, and what a step costs is also given in units of these.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def processor_seconds(pid):
    cells = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(cells[11]) + int(cells[12])) / TICKS


def resident(pid):
    """MiB of the process, without the files that it maps."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise OSError("no RssAnon")


def yardstick():
    begin = time.thread_time()
    total = 0
    for i in range(60_000):
        total += i * i % 7
    return time.thread_time() - begin


def last_step(log):
    with open(log, "rb") as file:
        file.seek(max(0, os.path.getsize(log) - 400))
        lines = file.read().split(b"\n")
    return int(lines[-2].split(b",")[0]) if len(lines) > 2 else 0


def start_watch(program, run):
    watch = subprocess.Popen([program, "watch", run, "--port", "0"], stdout=subprocess.PIPE, text=True)
    for line in watch.stdout:
        if address := re.search(r"http:\S+", line):
            return watch, address[0]
    sys.exit("gluon watch ended")


class Soak:
    def __init__(self, options, folder):
        self.options, self.run = options, Path(folder) / "run"
        self.samples = []  # step, processor seconds, yardstick, memory of the run, memory of watch
        self.answers = 0
        command = [options.program, "train", "--threads", "1", "--layers", "1", "--width", "16", "--heads", "1",
                   "--seq", "8", "--batch", "1", "--steps", str(options.steps), "--save-every", "100",
                   "--eval-every", "1000", "--smoothness-every", "100", "--out", str(self.run)]
        self.train = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while not (self.run / "log.csv").exists():
            if self.train.poll() is not None:
                sys.exit(f"gluon train ended with {self.train.returncode}")
            time.sleep(0.05)
        self.watch, self.address = start_watch(options.program, str(self.run))

    def ask(self):
        with urllib.request.urlopen(self.address + "data.json", timeout=60) as answer:
            if answer.status == 200:
                json.loads(answer.read())
                self.answers += 1

    def look(self):
        unit = statistics.median(yardstick() for _ in range(3))
        try:
            self.samples.append((last_step(self.run / "log.csv"), processor_seconds(self.train.pid), unit,
                                 resident(self.train.pid), resident(self.watch.pid)))
        except (OSError, ValueError):  # the run has ended meanwhile
            pass

    def go(self):
        try:
            while self.train.poll() is None:
                begin = time.monotonic()
                self.ask()
                self.look()
                time.sleep(max(0.0, 1 - (time.monotonic() - begin)))
            return self.train.returncode
        finally:
            for process in (self.train, self.watch):
                process.kill()
                process.wait()

    def tenth(self, first):
        """Steps per processor second, the yardstick there, and the memory of both processes."""
        steps = self.options.steps
        low, high = (0.01 * steps, 0.1 * steps) if first else (0.9 * steps, steps)
        mine = [sample for sample in self.samples if low <= sample[0] <= high]
        pace = (mine[-1][0] - mine[0][0]) / (mine[-1][1] - mine[0][1])
        middle = [statistics.median(sample[i] for sample in mine) for i in (2, 3, 4)]
        return pace, *middle


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=os.path.abspath)
    parser.add_argument("--steps", type=int, default=200_000)
    options = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="gluon-soak-")
    try:
        begin = time.monotonic()
        soak = Soak(options, folder)
        code = soak.go()
        first, last = soak.tenth(True), soak.tenth(False)
        samples = len((soak.run / "smoothness.csv").read_text().splitlines()) - 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{options.steps} steps, {options.steps // 100} checkpoints, {samples} smoothness samples, {soak.answers} "
          f"answers of watch, {time.monotonic() - begin:.0f} s, exit code {code}")
    print(f"{'':34} {'first tenth':>12} {'last tenth':>12} {'change':>8}")
    names = ["steps per processor second", "yardstick (ms)", "memory of train (MiB)", "memory of watch (MiB)"]
    for name, one, other in zip(names, first, last):
        factor = 1000 if "ms" in name else 1
        print(f"{name:34} {one * factor:12.2f} {other * factor:12.2f} {100 * (other / one - 1):+7.1f}%")
    steady = (last[0] * last[1]) / (first[0] * first[1])
    units = first[0] * first[1], last[0] * last[1]
    print(f"{'steps per yardstick':34} {units[0]:12.3f} {units[1]:12.3f} {100 * (steady - 1):+7.1f}%")
    good = code == 0 and max(steady, last[0] / first[0]) > 0.97 and last[2] < 1.05 * first[2]
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
