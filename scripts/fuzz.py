#!/usr/bin/env python3
"""Runs the fuzz targets one after another and prints a table of what they did.

fuzz.py [--seconds 600] [--work build-fuzz/corpus] [TARGET]...     all targets without an argument

Inputs that were new to a target are kept in WORK/TARGET, the inputs of findings in WORK/found, the logs beside them.
The exit status is 1 when there was a finding.
"""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "build-fuzz" / "tests" / "fuzz"
CORPUS = ROOT / "tests" / "fuzz" / "corpus"
# A hostile size has to be refused before it is allocated: no single allocation of 1 GiB, 3 GiB in all.
LIMITS = ["-malloc_limit_mb=1024", "-rss_limit_mb=3072", "-timeout=20"]
ENVIRONMENT = {
    "ASAN_OPTIONS": "detect_leaks=1:detect_odr_violation=0",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "OMP_NUM_THREADS": "1",
}


def summary(log):
    """Executions, covered edges and the finding, from what libFuzzer wrote."""
    executions = re.findall(r"^stat::number_of_executed_units: (\d+)", log, re.M)
    edges = re.findall(r"cov: (\d+)", log)
    finding = re.search(r"^(?:SUMMARY: .*|.*runtime error: .*|terminate called.*)$", log, re.M)
    return executions[-1] if executions else "0", edges[-1] if edges else "0", finding[0].strip() if finding else ""


def fuzz(target, seconds, work):
    """Runs one target; returns its row of the table and whether it found something."""
    found = work / "found"
    for folder in (work / target, found):
        folder.mkdir(parents=True, exist_ok=True)
    command = [PROGRAMS / f"fuzz_{target}", work / target, CORPUS / target, f"-max_total_time={seconds}",
               "-print_final_stats=1", f"-artifact_prefix={found}/{target}-", *LIMITS]
    log = work / f"{target}.log"
    with open(log, "wb") as out:
        code = subprocess.run(command, stdout=out, stderr=out, env={**os.environ, **ENVIRONMENT}).returncode
    executions, edges, finding = summary(log.read_text(errors="replace"))
    finding = "none" if code == 0 else finding or f"exit status {code}, see {log}"
    return f"| {target} | {executions} | {edges} | {finding} |", code != 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=600, help="for each target")
    parser.add_argument("--work", type=Path, default=ROOT / "build-fuzz" / "corpus")
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    options = parser.parse_args()
    targets = options.targets or sorted(path.name for path in CORPUS.iterdir())
    print("| target | executions | edges | finding |\n|---|---|---|---|", flush=True)
    findings = 0
    for target in targets:
        row, found = fuzz(target, options.seconds, options.work)
        print(row, flush=True)
        findings += found
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
