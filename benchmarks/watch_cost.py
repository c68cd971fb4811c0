#!/usr/bin/env python3
"""What `gluon watch` costs the training it watches: the same short training, alternately alone and watched by a page
that asks every second.

    benchmarks/watch_cost.py [--program build/gluon] [--pairs 5] [--steps 100] [--at-most 1.0]

Both use all cores, so what the server takes, a thread of the training waits for. The kernel counts that wait
(/proc/PID/task/*/schedstat); the sum over the threads, as a share of the time, bounds how much slower the training
is. Seconds are printed beside it: on a shared machine they vary by more than what is measured here. With --at-most P
the exit status is 1 when the wait grows by more than P percent of the time.
"""

import argparse
import contextlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

PAUSE = 1.0  # seconds between two requests of an open page


@contextlib.contextmanager
def watched(program, run):
    """An open page of the run, from its first line on."""
    server = subprocess.Popen([program, "watch", run, "--port", "0"], stdout=subprocess.PIPE, text=True)
    address = next(word for line in server.stdout for word in line.split() if word.startswith("http:"))
    closed = threading.Event()
    answers = []

    def ask():
        while not closed.wait(PAUSE):
            with urllib.request.urlopen(f"{address}data.json") as answer:
                answers.append(len(answer.read()))

    page = threading.Thread(target=ask)
    page.start()
    try:
        yield answers
    finally:
        closed.set()
        page.join()
        server.terminate()
        server.wait()


def waited(process):
    """Seconds that threads of a process were ready and had no core."""
    threads = Path(f"/proc/{process.pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[1]) for thread in threads) / 1e9


def wait_share(program, steps, is_watched):
    """Seconds of a training, and its threads' wait for a core as a percentage of them."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = [program, "train", "--steps", str(steps), "--eval-every", str(steps), "--smoothness-every", "10"]
        training = subprocess.Popen([*command, "--out", run], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while training.poll() is None and not (run / "log.csv").exists():
            time.sleep(0.05)
        with watched(program, run) if is_watched else contextlib.nullcontext([1]) as answers:
            while not answers:  # the server has started
                time.sleep(0.05)
            start, wait_before, wait = time.monotonic(), waited(training), 0
            while training.poll() is None:
                now, wait = time.monotonic(), waited(training) or wait
                time.sleep(0.2)
        if training.returncode != 0:
            sys.exit("watch_cost: the training failed")
        return now - start, 100 * (wait - wait_before) / (now - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/gluon")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--at-most", type=float, help="percent")
    options = parser.parse_args()
    added = []
    for pair in range(options.pairs):
        alone, beside = (wait_share(options.program, options.steps, is_watched) for is_watched in (False, True))
        added.append(beside[1] - alone[1])
        print(f"pair {pair + 1}: alone {alone[0]:.1f} s, waiting {alone[1]:.2f} %;"
              f" watched {beside[0]:.1f} s, waiting {beside[1]:.2f} %", flush=True)
    percent = statistics.median(added)
    bound = "" if options.at_most is None else f", bound {options.at_most:g} %"
    print(f"a watched training waits {percent:+.2f} % of its time longer{bound}")
    return int(options.at_most is not None and percent > options.at_most)


if __name__ == "__main__":
    sys.exit(main())
