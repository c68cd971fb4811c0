#!/usr/bin/env python3
"""Starts real runs, breaks them, resumes them, and compares each with the undisturbed run bit for bit.

driver.py PROGRAM [--faults 200] [--seed 1] [--jobs 2]   prints a table by kind; exits 1 when a run was lost or differs
driver.py PROGRAM --seed S --fault K                      repeats one fault and keeps its files
"""

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from faults import KINDS, RANKS, Skip
from runs import Lost, Run, difference


class Driver:
    def __init__(self, options, folder):
        self.options, self.folder = options, Path(folder)
        self.folder.chmod(0o777)  # one kind of fault runs as another user
        self.whole = {ranks: self.undisturbed(ranks) for ranks in (0, 2)}

    def undisturbed(self, ranks):
        run = Run(self.options.program, self.folder / f"whole{ranks}", ranks=ranks)
        run.start()
        if run.wait() != 0:
            text = run.output.read_text(errors="replace")
            if "has no gloo" in text:
                return None
            sys.exit(f"the undisturbed run failed:\n{text[-500:]}")
        return run

    def fault(self, number):
        """Returns kind, outcome ("same", "skipped", "lost"), whether it struck, differing bytes, and a remark."""
        kind = KINDS[number % len(KINDS)]
        draw = random.Random(f"{self.options.seed}/{number}")
        ranks = 2 if kind in RANKS else 0
        if self.whole[ranks] is None:
            return kind, "skipped", False, 0, "this build has no Gloo"
        run = Run(self.options.program, self.folder / f"fault{number}", ranks=ranks)
        struck, off, remark = False, 0, ""
        try:
            struck = kind(run, draw)
            if not run.complete():
                run.finish()
            off = difference(run, self.whole[ranks])
            remark = f"{off} bytes differ" if off else ""
            outcome = "same"
        except Skip as skip:
            outcome, remark = "skipped", str(skip)
        except (Lost, OSError) as lost:
            outcome, remark = "lost", f"{type(lost).__name__}: {lost}"
        if self.options.fault is None and outcome != "lost" and off == 0:
            shutil.rmtree(run.place, ignore_errors=True)
        return kind, outcome, struck, off, remark

    def all_faults(self):
        numbers = range(self.options.faults) if self.options.fault is None else [self.options.fault]
        with ThreadPoolExecutor(self.options.jobs) as pool:
            return list(zip(numbers, pool.map(self.fault, numbers)))


def report(results, options, seconds):
    print(f"{'kind':16} {'faults':>6} {'struck':>6} {'lost runs':>9} {'differing bytes':>15}")
    totals = [0, 0, 0, 0]
    for kind in KINDS:
        mine = [result for _, result in results if result[0] is kind and result[1] != "skipped"]
        row = [len(mine), sum(r[2] for r in mine), sum(r[1] == "lost" for r in mine), sum(r[3] for r in mine)]
        totals = [a + b for a, b in zip(totals, row)]
        if mine:
            print(f"{kind.__name__:16} {row[0]:6} {row[1]:6} {row[2]:9} {row[3]:15}")
    print(f"{'all':16} {totals[0]:6} {totals[1]:6} {totals[2]:9} {totals[3]:15}   in {seconds:.0f} s")
    for word in sorted({result[4] for _, result in results if result[1] == "skipped"}):
        print("left out:", word)
    for number, result in results:
        if result[1] == "lost" or result[3]:
            print(f"{result[0].__name__}: {result[4]}; repeat it with --seed {options.seed} --fault {number}")
    return totals


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=os.path.abspath)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--fault", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    os.environ["GOMP_SPINCOUNT"] = "1000"  # more threads than cores
    begin = time.monotonic()
    folder = tempfile.mkdtemp(prefix="gluon-torture-")
    try:
        results = Driver(options, folder).all_faults()
        faults, struck, lost, off = report(results, options, time.monotonic() - begin)
        # A fault that comes after the end of its run proves nothing.
        good = lost == 0 and off == 0 and 5 * struck >= 4 * faults
        if not good and 5 * struck < 4 * faults:
            print("too few faults struck a run at work")
    finally:
        if options.fault is not None:
            print("files:", folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
