#!/usr/bin/env python3
"""Measures the tests: plants one small fault at a time in the library and checks that a test fails.

A fault flips a sign, a comparison, a constant or a boolean operator, or drops a statement. The seed picks the
places, the same number in every folder. For each fault the script rebuilds the library and the folder's test
executables, runs them and restores the file. The result is a Markdown table: place, fault, and the test that
caught it, "survived" or "did not compile". A test that hangs or crashes counts as caught.

    scripts/mutate.py --seed 1 --count 100              all folders
    scripts/mutate.py --seed 2 --count 15 --folder fit  one folder
    scripts/mutate.py --seed 1 --count 100 --list       only print the faults

Comments, strings, preprocessor lines, error messages and declarations stay as they are. A CPU cannot execute files
named *cuda* or *fused*, nor an `if` or a `?` whose condition names cuda or kernels::; these places are never picked.
"""

import argparse
import random
import re
import resource
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# The test executables of each folder of gluon/, in the order in which they run.
TESTS = {
    "lmo": ["lmo_tests", "orthogonalize_tests"],
    "momentum": ["momentum_radius_tests"],
    "radius": ["momentum_radius_tests"],
    "update": ["update_tests"],
    "fit": ["fit_tests"],
    "theory": ["theory_tests"],
    "smoothness": ["smoothness_tests"],
    "checkpoint": ["checkpoint_tests"],
}

NUMBER = re.compile(r"(?<![\w.'])\d[\d']*\.?\d*(?:[eE][-+]?\d+)?(?![\w.])")
GPU = re.compile("cuda|kernels::", re.I)
REPLACEMENTS = {
    "sign": {" + ": [" - "], " - ": [" + "], " * ": [" / "], " / ": [" * "], " += ": [" -= "], " -= ": [" += "],
             " *= ": [" /= "], " /= ": [" *= "], ".neg()": [""], ".neg_()": [""], ".add_(": [".sub_("],
             ".sub_(": [".add_("], ".mul_(": [".div_("], ".div_(": [".mul_("]},
    "comparison": {" < ": [" <= ", " >= "], " <= ": [" < ", " > "], " > ": [" >= ", " <= "],
                   " >= ": [" > ", " < "], " == ": [" != "], " != ": [" == "]},
    "boolean": {" && ": [" || "], " || ": [" && "], " &&\n": [" ||\n"], " ||\n": [" &&\n"]},
    "constant": {"true": ["false"], "false": ["true"]},
}


@dataclass(frozen=True)
class Fault:
    kind: str
    path: Path
    begin: int
    end: int
    new: str

    def place(self, text):
        return f"{self.path.relative_to(ROOT)}:{text.count(chr(10), 0, self.begin) + 1}"

    def change(self, text):
        """One line that shows the old and the new code with a few words around them."""
        old = text[self.begin:self.end]
        if self.kind == "drop":
            return "drop `" + " ".join(old.split()) + "`"
        start = max(text.rfind("\n", 0, self.begin) + 1, self.begin - 24)
        stop = text.find("\n", self.end)
        stop = min(stop if stop >= 0 else len(text), self.end + 24)
        before, after = text[start:self.begin].lstrip(), text[self.end:stop].rstrip()
        return f"`{before}{old}{after}` -> `{before}{self.new}{after}`".replace("\n", "").replace("|", "\\|")


def closing(code, start):
    """The position after the bracket that closes the one at `start`."""
    depth = 0
    for i in range(start, len(code)):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(code[i], 0)
        if depth == 0:
            return i + 1
    return len(code)


def statement_end(code, start):
    """The position after the statement that begins at `start`, a block or code up to a semicolon."""
    i = start
    while i < len(code):
        if code[i] in "([{":
            block = code[i] == "{" and not code[start:i].strip()
            i = closing(code, i)
            if block:
                return i
        elif code[i] in ";}":
            return i + 1
        else:
            i += 1
    return i


def blank(text, spans):
    for begin, end in spans:
        text = text[:begin] + re.sub(r"[^\n]", " ", text[begin:end]) + text[end:]
    return text


def arguments_after_first(code, start):
    """The span of all arguments but the first of the call whose bracket opens at `start`."""
    end, i = closing(code, start) - 1, start + 1
    while i < end and code[i] != ",":
        i = closing(code, i) if code[i] in "([{" else i + 1
    return i, end


def mutable_code(text):
    """`text` with blanks in place of everything that stays as it is; and the same with GPU code left in."""
    code = re.sub(r'//[^\n]*|/\*.*?\*/|R"\((?:.*?)\)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'|^#[^\n]*',
                  lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.S | re.M)
    messages = [arguments_after_first(code, m.end() - 1) for m in re.finditer(r"\bGLUON_CHECK\(", code)]
    messages += [(m.end(), closing(code, m.end() - 1)) for m in re.finditer(r"\b(?:\w*Error|static_assert)\(", code)]
    code = blank(code, messages)
    cuda = []
    for m in re.finditer(r"\bif (?:constexpr )?\(", code):
        end = closing(code, m.end() - 1)
        if GPU.search(code[m.end():end]):
            cuda.append((m.start(), statement_end(code, end)))
    for m in re.finditer(r"[^;{}?]*\?[^;]*;", code):
        if GPU.search(m[0].split("?")[0]):
            cuda.append(m.span())
    return blank(code, cuda), code


def droppable(code):
    """Spans of statements that can go: calls, assignments, `if (...) return`, continue and break."""
    for m in re.finditer(r"(?<=[;{}])\s*(?=[A-Za-z_*])", code):
        start = m.end()
        end = statement_end(code, start)
        statement = code[start:end]
        if re.match(r"if \(", statement):
            after = closing(code, start + 3)
            simple = not code[after:].lstrip().startswith("{") and not code[end:].lstrip().startswith("else")
            if simple and re.match(r"\s*(return|continue|break|throw|[\w.]+(\(| [-+*/]?= ))", code[after:end]):
                yield start, end
        elif re.match(r"(?!return\b|static_assert)[\w:.*>\-]+(\[[^\]]*\])*(\(| [-+*/|]?= )", statement):
            if statement.endswith(";"):
                yield start, end


def changed_number(literal, rng):
    literal = literal.replace("'", "")
    if literal.isdigit():
        value = int(literal)
        return str(value + 1) if value == 0 or rng.random() < 0.5 else str(value - 1)
    return repr(float(literal) * 2)


def faults_of(path, rng):
    """All faults of one file by kind, and how many places only a GPU executes."""
    text = path.read_text()
    code, with_cuda = mutable_code(text)
    found = {"sign": [], "comparison": [], "boolean": [], "constant": [], "drop": []}
    for kind, table in REPLACEMENTS.items():
        for old, new in table.items():
            word = r"\b" if old[0].isalpha() else ""
            for m in re.finditer(word + re.escape(old) + word, code):
                found[kind].append(Fault(kind, path, m.start(), m.end(), rng.choice(new)))
    for m in re.finditer(r"(?<=[(,=?:] )-(?=[\w(])|(?<=[(\[{])-(?=[\w(])|(?<=return )-(?=[\w(])", code):
        found["sign"].append(Fault("sign", path, m.start(), m.end(), ""))
    for m in re.finditer(r"(?<![\w)])!(?=[\w(])", code):
        found["boolean"].append(Fault("boolean", path, m.start(), m.end(), ""))
    for m in NUMBER.finditer(code):
        found["constant"].append(Fault("constant", path, m.start(), m.end(), changed_number(m[0], rng)))
    for begin, end in droppable(code):
        found["drop"].append(Fault("drop", path, begin, end, ";"))
    hidden = sum(a != b for a, b in zip(code.splitlines(), with_cuda.splitlines()))
    return found, hidden


def pick(folders, count, seed):
    """`count` faults: folders take turns, the kind is drawn first, no place is drawn twice."""
    rng = random.Random(seed)
    pools = {}
    for folder in folders:
        pool = {}
        for path in sorted((ROOT / "gluon" / folder).rglob("*.cpp")):
            if re.search("cuda|fused", path.name):
                continue
            found, hidden = faults_of(path, rng)
            if hidden:
                print(f"{path.relative_to(ROOT)}: {hidden} lines need a GPU", file=sys.stderr)
            for kind, faults in found.items():
                pool.setdefault(kind, []).extend(faults)
        pools[folder] = {kind: faults for kind, faults in pool.items() if faults}
    chosen = []
    while len(chosen) < count and any(pools.values()):
        for folder, pool in pools.items():
            if not pool or len(chosen) == count:
                continue
            kind = rng.choice(sorted(pool))
            chosen.append((folder, pool[kind].pop(rng.randrange(len(pool[kind])))))
            if not pool[kind]:
                del pool[kind]
    return chosen


def limit_memory():
    resource.setrlimit(resource.RLIMIT_DATA, (6 << 30, 6 << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def build(directory, target):
    return subprocess.run(["ninja", "-C", directory, target], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True)


def failure(directory, target, timeout):
    """The test of the executable that fails, or None when all pass."""
    command = [str(Path(directory) / "tests" / target), "--gtest_fail_fast", "--gtest_brief=1"]
    try:
        run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                             timeout=timeout, preexec_fn=limit_memory, cwd=directory)
    except subprocess.TimeoutExpired:
        return f"{target} (hangs)"
    if run.returncode == 0:
        return None
    names = re.findall(r"^\[  FAILED  \] ([\w./]+)", run.stdout, re.M)
    return names[0] if names else f"{target} (exit code {run.returncode})"


def verdict(directory, targets, seconds):
    for target in targets:
        built = build(directory, target)
        if built.returncode != 0:
            return "did not compile"
        caught = failure(directory, target, 5 * seconds[target] + 20)
        if caught:
            return caught
    return "survived"


def require_clean_tree():
    changes = subprocess.run(["git", "status", "--porcelain", "--untracked-files=no"], cwd=ROOT, text=True,
                             stdout=subprocess.PIPE, check=True).stdout
    if changes:
        sys.exit(f"mutate.py: commit or stash these changes first:\n{changes}")


def baseline(directory, targets):
    """Seconds of each test executable on the unchanged code; every test must pass there."""
    seconds = {}
    for target in targets:
        built = build(directory, target)
        if built.returncode != 0:
            sys.exit(f"mutate.py: {target} does not build\n{built.stdout[-2000:]}")
        start = time.monotonic()
        failed = failure(directory, target, 600)
        if failed:
            sys.exit(f"mutate.py: {failed} fails without a fault")
        seconds[target] = time.monotonic() - start
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="which faults are picked")
    parser.add_argument("--count", type=int, default=100, help="how many faults")
    parser.add_argument("--folder", action="append", choices=sorted(TESTS), help="only this folder of gluon/")
    parser.add_argument("--build", default=str(ROOT / "build"), help="a configured build directory")
    parser.add_argument("--list", action="store_true", help="print the faults and change nothing")
    options = parser.parse_args()
    chosen = pick(options.folder or list(TESTS), options.count, options.seed)
    if not options.list:
        require_clean_tree()
        seconds = baseline(options.build, sorted({t for folder, _ in chosen for t in TESTS[folder]}))
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    print("| place | fault | caught by |\n|---|---|---|", flush=True)
    results = []
    for folder, fault in chosen:
        original = fault.path.read_text()
        result = ""
        if not options.list:
            try:
                fault.path.write_text(original[:fault.begin] + fault.new + original[fault.end:])
                result = verdict(options.build, TESTS[folder], seconds)
            finally:
                fault.path.write_text(original)
            results.append(result)
        print(f"| {fault.place(original)} | {fault.change(original)} | {result} |", flush=True)
    if results:
        missing, survived = results.count("did not compile"), results.count("survived")
        print(f"\n{len(results)} faults: {len(results) - missing - survived} caught, {survived} survived, "
              f"{missing} did not compile")


if __name__ == "__main__":
    main()
