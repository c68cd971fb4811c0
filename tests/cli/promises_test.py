#!/usr/bin/env python3
"""What docs/security.md promises about the program as a whole: promises_test.py PROGRAM

No shell and no other program: it imports none of the functions that start one, but for posix_spawn, by which --ranks
starts itself. No pickle: no source reads torch's own formats, but for TorchOptimizer::load, whose archive the caller
has opened, as torch.optim's. No network unless asked: commands open no socket.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = os.path.abspath(sys.argv.pop(1))


def sources(*folders):
    for folder in folders:
        yield from (path for path in sorted((ROOT / folder).rglob("*")) if path.suffix in {".h", ".cpp"})


class Promises(unittest.TestCase):
    def test_starts_no_other_program(self):
        symbols = subprocess.run(["nm", "-D", "--undefined-only", PROGRAM], capture_output=True, text=True, check=True)
        names = {line.split()[-1].split("@")[0] for line in symbols.stdout.splitlines()}
        self.assertIn("posix_spawn", names)  # or nm shows nothing at all
        for name in ("system", "popen", "fork", "vfork", "execve", "execv", "execvp", "execl", "execlp", "execle",
                     "posix_spawnp", "wordexp", "dlopen"):
            self.assertNotIn(name, names)
        spawning = [path.name for path in sources("gluon", "lab", "cli") if "posix_spawn" in path.read_text()]
        self.assertEqual(spawning, ["launcher.cpp"])
        self.assertIn('"/proc/self/exe"', (ROOT / "lab/ranks/launcher.cpp").read_text())

    def test_reads_no_pickle(self):
        forbidden = re.compile(r"torch::(load|jit|pickle)|pickle_load|InputArchive|torch/(serialize|script)")
        for path in sources("gluon", "lab", "cli"):
            if path.stem == "torch_optimizer":
                continue
            self.assertIsNone(forbidden.search(path.read_text()), path)

    def test_opens_no_socket(self):
        small = ["--threads", "1", "--layers", "1", "--width", "32", "--heads", "2", "--seq", "32", "--batch", "4"]
        with tempfile.TemporaryDirectory() as folder:
            run = os.path.join(folder, "run")
            for command in (["train", *small, "--steps", "60", "--smoothness-every", "5", "--out", run],
                            ["train", "--resume", "--steps", "80", "--out", run], ["sample", run],
                            ["fit", run], ["report", run, "--text"]):
                self.assertEqual(self.sockets_of(command), set(), command)

    def sockets_of(self, command):
        """The sockets that a command has open, looked for as long as it runs. Those of less than 50 ms are left out:
        the C library asks for a cache of user names by a local socket that it closes at once."""
        process = subprocess.Popen([PROGRAM, *command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        seen, looks = {}, 0
        while process.poll() is None:
            looks += 1
            try:
                for number in os.listdir(f"/proc/{process.pid}/fd"):
                    target = os.readlink(f"/proc/{process.pid}/fd/{number}")
                    if target.startswith("socket:") and int(number) > 2:
                        now = time.monotonic()
                        seen[target] = seen.get(target, (now, now))[0], now
            except OSError:  # closed, or ended, since
                pass
        self.assertEqual(process.returncode, 0, command)
        self.assertGreater(looks, 10)
        return {target for target, (first, last) in seen.items() if last - first >= 0.05}


if __name__ == "__main__":
    unittest.main()
