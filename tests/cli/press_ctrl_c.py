"""Runs a command in a terminal of its own and presses Ctrl-C there twice.

  press_ctrl_c.py PROCESSES COMMAND...

Waits until PROCESSES of the command's processes catch SIGTERM, as no Python does before it becomes the command. Exits
with the command's status, 128 and its number after a signal, or with 1 and a sentence when the first press ended the
command or the second did not.
"""

import os
import pathlib
import pty
import signal
import sys
import time

SIGTERM_BIT = 1 << (signal.SIGTERM - 1)
PATIENCE = 120  # seconds, on a busy machine


def processes(root):
    children = pathlib.Path(f"/proc/{root}/task/{root}/children").read_text().split()
    return [root] + [one for child in children for one in processes(int(child))]


def catch_sigterm(root):
    caught = 0
    for process in processes(root):
        status = pathlib.Path(f"/proc/{process}/status").read_text()
        mask = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
        caught += bool(int(mask.split()[1], 16) & SIGTERM_BIT)
    return caught


def ended(child, terminal):
    """The wait status, None while the command runs. Reads the terminal, or the command would wait for space there."""
    os.set_blocking(terminal, False)
    try:
        while os.read(terminal, 65536):
            pass
    except OSError:  # nothing left, or the terminal has closed
        pass
    done, status = os.waitpid(child, os.WNOHANG)
    return status if done else None


def main():
    count, command = int(sys.argv[1]), sys.argv[2:]
    child, terminal = pty.fork()
    if child == 0:
        os.execvp(command[0], command)
    deadline = time.monotonic() + PATIENCE
    while catch_sigterm(child) < count:
        if ended(child, terminal) is not None or time.monotonic() > deadline:
            sys.exit("the command does not catch SIGTERM")
        time.sleep(0.1)
    os.write(terminal, b"\x03")
    time.sleep(0.5)
    if ended(child, terminal) is not None:
        sys.exit("the first Ctrl-C ended a step")
    os.write(terminal, b"\x03")
    deadline = time.monotonic() + PATIENCE
    while (status := ended(child, terminal)) is None:
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            sys.exit("the second Ctrl-C did not end a step")
        time.sleep(0.1)
    code = os.waitstatus_to_exitcode(status)
    sys.exit(code if code >= 0 else 128 - code)


main()
