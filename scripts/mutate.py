#!/usr/bin/env python3
"""Measures the tests: plants one small fault at a time in the library and checks that a test fails.

A fault flips a sign, a comparison, a constant or a boolean operator, or drops a statement. The seed picks the
places, the same number in every folder. For each fault the script compiles a changed copy of the source in the
build directory, links it into the folder's test executables and runs them; the working tree stays as it is. The
result is a Markdown table: place, fault, and the test that caught it, "survived" or "did not compile". A test
that hangs or crashes counts as caught.

    scripts/mutate.py --seed 1 --count 100
    scripts/mutate.py --seed 2 --count 15 --folder fit

Comments, strings, preprocessor lines, error messages and declarations stay as they are. A CPU cannot execute files
named *cuda* or *fused*, lines that name cuda, fused or kernels::, and what an `if` or `?` on such a line guards;
these places are never picked.
"""

import argparse
import json
import random
import re
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# The test executables of each folder of gluon/, in the order in which they run.
TESTS = {
    "lmo": ["lmo_tests", "orthogonalize_tests"],
    "momentum": ["momentum_radius_tests"],
    "radius": ["momentum_radius_tests"],
    "geometry": ["geometry_tests", "update_tests"],
    "plan": ["update_tests", "distributed_tests"],  # the second: layers of several ranks
    "update": ["update_tests", "distributed_tests"],
    "fit": ["fit_tests"],
    "theory": ["theory_tests"],
    "smoothness": ["smoothness_tests"],
    "checkpoint": ["checkpoint_tests", "distributed_tests"],
}

NUMBER = re.compile(r"(?<![\w.'])\d[\d']*\.?\d*(?:[eE][-+]?\d+)?(?![\w.])")
GPU = re.compile("cuda|fused|kernels::", re.I)
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
        before = text[:self.begin].rpartition("\n")[2][-24:].lstrip()
        after = text[self.end:].partition("\n")[0][:24].rstrip()
        return f"`{before}{old}{after}` -> `{before}{self.new}{after}`".replace("\n", "").replace("|", "\\|")


def closing(code, start):
    """The position after the bracket that closes the one at `start`."""
    depth = 0
    for i in range(start, len(code)):
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(code[i], 0)
        if depth == 0:
            return i + 1
    return len(code)


def find(code, i, stops):
    """The position of the next of `stops` outside of brackets."""
    while i < len(code) and code[i] not in stops:
        i = closing(code, i) if code[i] in "([{" else i + 1
    return i


def statement_end(code, start):
    """The position after the statement that begins at `start`, a block or code up to a semicolon."""
    block = re.compile(r"\s*(?={)").match(code, start)
    return closing(code, block.end()) if block else find(code, start, ";}") + 1


def blank(text, spans):
    for begin, end in spans:
        text = text[:begin] + re.sub(r"[^\n]", " ", text[begin:end]) + text[end:]
    return text


def mutable_code(text):
    """`text` with blanks in place of everything that stays as it is."""
    code = re.sub(r'//[^\n]*|/\*.*?\*/|R"\((?:.*?)\)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'|^#[^\n]*',
                  lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.S | re.M)
    messages = [(find(code, m.end(), ",)"), closing(code, m.end() - 1) - 1)
                for m in re.finditer(r"\bGLUON_CHECK\(", code)]
    messages += [(m.end(), closing(code, m.end() - 1)) for m in re.finditer(r"\b(?:\w*Error|static_assert)\(", code)]
    code = blank(code, messages)
    cuda = [m.span() for m in re.finditer(r"[^\n]+", code) if GPU.search(m[0]) and "?" not in m[0]]
    for m in re.finditer(r"\bif (?:constexpr )?\(", code):
        end = closing(code, m.end() - 1)
        if GPU.search(code[m.end():end]):
            cuda.append((m.start(), statement_end(code, end)))
    for m in re.finditer(r"[^;{}?]*\?[^;]*;", code):
        if GPU.search(m[0].split("?")[0]):
            cuda.append(m.span())
    return blank(code, cuda)


def droppable(code):
    """Spans of statements that can go: calls, assignments, `if (...) return`, continue and break."""
    for m in re.finditer(r"(?<=[;{}])\s*(?=[A-Za-z_*])", code):
        start = m.end()
        end = statement_end(code, start)
        statement = code[start:end]
        if statement.startswith("if ("):
            body = code[closing(code, start + 3):end].lstrip()
            droppable_if = not body.startswith("{") and not code[end:].lstrip().startswith("else")
        else:
            droppable_if = statement.endswith(";")
        call_or_assignment = r"(?!return\b|static_assert)[\w:.*>\-]+(\[[^\]]*\])*(\(| [-+*/|]?= )"
        if droppable_if and re.match("if |" + call_or_assignment, statement):
            yield start, end


def changed_number(literal, rng):
    literal = literal.replace("'", "")
    if not literal.isdigit():
        return repr(float(literal) * 2)
    return str(int(literal) + (1 if literal == "0" else rng.choice([-1, 1])))


def faults_of(path, rng):
    """All faults of one file by kind."""
    code = mutable_code(path.read_text())
    found = {kind: [] for kind in REPLACEMENTS}
    for kind, table in REPLACEMENTS.items():
        for old, new in table.items():
            word = r"\b" if old[0].isalpha() else ""
            found[kind] += [Fault(kind, path, *m.span(), rng.choice(new))
                            for m in re.finditer(word + re.escape(old) + word, code)]
    minus = r"(?<=[(,=?:] )-(?=[\w(])|(?<=[(\[{])-(?=[\w(])|(?<=return )-(?=[\w(])"
    found["sign"] += [Fault("sign", path, *m.span(), "") for m in re.finditer(minus, code)]
    found["boolean"] += [Fault("boolean", path, *m.span(), "") for m in re.finditer(r"(?<![\w)])!(?=[\w(])", code)]
    found["constant"] += [Fault("constant", path, *m.span(), changed_number(m[0], rng)) for m in NUMBER.finditer(code)]
    found["drop"] = [Fault("drop", path, *span, ";") for span in droppable(code)]
    return found


def pick(folders, count, seed):
    """`count` faults: folders take turns, the kind is drawn first, no place is drawn twice."""
    rng = random.Random(seed)
    pools = {}
    for folder in folders:
        pool = {}
        for path in sorted(p for p in (ROOT / "gluon" / folder).rglob("*.cpp") if not GPU.search(p.name)):
            for kind, faults in faults_of(path, rng).items():
                pool.setdefault(kind, []).extend(faults)
        pools[folder] = {kind: faults for kind, faults in pool.items() if faults}
    chosen = []
    while len(chosen) < count and any(pools.values()):
        for folder, pool in pools.items():
            if pool:
                kind = rng.choice(sorted(pool))
                chosen.append((folder, pool[kind].pop(rng.randrange(len(pool[kind])))))
                pools[folder] = {kind: faults for kind, faults in pool.items() if faults}
    return chosen[:count]


def limit_memory():
    resource.setrlimit(resource.RLIMIT_DATA, (6 << 30, 6 << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def run(command, directory, **options):
    return subprocess.run(command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", **options)


class Build:
    """A configured build directory: its commands, with a changed source in place of the library's."""

    def __init__(self, directory, launcher):
        self.directory, self.launcher = Path(directory).resolve(), launcher
        self.compile, self.link, self.seconds = {}, {}, {}

    def prepare(self, targets):
        """Builds the targets from the unchanged code, where every test must pass, and takes their times."""
        built = run(["ninja", *targets], self.directory)
        if built.returncode != 0:
            sys.exit(f"mutate.py: the unchanged code does not build\n{built.stdout[-2000:]}")
        for entry in json.loads((self.directory / "compile_commands.json").read_text()):
            self.compile.setdefault(Path(entry["directory"], entry["file"]).resolve(), entry["command"])
        for target in targets:
            command = run(["ninja", "-t", "commands", target], self.directory).stdout.splitlines()[-1]
            self.link[target] = re.sub(r"^:\s*&&|&&\s*:\s*$", "", command)
            start = time.monotonic()
            failed = self.failure(self.directory / "tests" / target, 600)
            if failed:
                sys.exit(f"mutate.py: {failed} fails without a fault")
            self.seconds[target] = time.monotonic() - start

    def compiled(self, path, source, folder):
        """The object file of `source`, which stands in for `path`; None when it does not compile."""
        words = shlex.split(self.compile[path])
        words = words[next(i for i, word in enumerate(words) if re.search(r"(c|clang|g)\+\+[-\d.]*$", word)):]
        copy, out = folder / path.name, folder / "changed.o"
        copy.write_text(source)
        words[words.index("-c") + 1] = str(copy)
        words[words.index("-o") + 1] = str(out)
        return out if run(self.launcher + words, self.directory).returncode == 0 else None

    def failure(self, executable, timeout):
        """The test of the executable that fails, or None when all pass."""
        try:
            result = run([executable, "--gtest_fail_fast", "--gtest_brief=1"], self.directory, timeout=timeout,
                         preexec_fn=limit_memory)
        except subprocess.TimeoutExpired:
            return f"{executable.name} (hangs)"
        if result.returncode == 0:
            return None
        names = re.findall(r"^\[  FAILED  \] ([\w./]+)", result.stdout, re.M)
        return names[0] if names else f"{executable.name} (exit code {result.returncode})"

    def verdict(self, fault, targets):
        text = fault.path.read_text()
        with tempfile.TemporaryDirectory(dir=self.directory) as name:
            folder = Path(name)
            changed = self.compiled(fault.path, text[:fault.begin] + fault.new + text[fault.end:], folder)
            if not changed:
                return "did not compile"
            for target in targets:
                # Before the library, so that the linker does not take the library's own object.
                words = shlex.split(self.link[target])
                at = words.index("-o")
                words[at + 1:at + 2] = [str(folder / target), str(changed)]
                run(words, self.directory, check=True)
                caught = self.failure(folder / target, 5 * self.seconds[target] + 20)
                if caught:
                    return caught
        return "survived"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="which faults are picked")
    parser.add_argument("--count", type=int, default=100, help="how many faults")
    parser.add_argument("--folder", action="append", choices=sorted(TESTS), help="only this folder of gluon/")
    parser.add_argument("--build", default=str(ROOT / "build"), help="a configured build directory")
    parser.add_argument("--jobs", type=int, default=1, help="how many faults at a time")
    parser.add_argument("--launcher", default="", help="a command put before the compiler, such as 'nice -n 19'")
    parser.add_argument("--list", action="store_true", help="print the faults and build nothing")
    options = parser.parse_args()
    chosen = pick(options.folder or list(TESTS), options.count, options.seed)
    build = Build(options.build, shlex.split(options.launcher))
    if not options.list:
        build.prepare(sorted({target for folder, _ in chosen for target in TESTS[folder]}))
    print("| place | fault | caught by |\n|---|---|---|", flush=True)
    results = []
    with ThreadPoolExecutor(options.jobs) as pool:
        verdicts = [None if options.list else pool.submit(build.verdict, fault, TESTS[folder])
                    for folder, fault in chosen]
        for (_, fault), verdict in zip(chosen, verdicts):
            results.append(verdict.result() if verdict else "")
            text = fault.path.read_text()
            print(f"| {fault.place(text)} | {fault.change(text)} | {results[-1]} |", flush=True)
    if not options.list:
        missing, survived = results.count("did not compile"), results.count("survived")
        print(f"\n{len(results)} faults: {len(results) - missing - survived} caught, {survived} survived, "
              f"{missing} did not compile")


if __name__ == "__main__":
    main()
