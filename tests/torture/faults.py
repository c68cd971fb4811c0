"""The kinds of faults. Each starts a run, breaks it at a random moment, and removes the fault; the driver then resumes.

A fault is a function of a Run and a random generator. It returns whether it struck while the run was at work, and
raises Lost when something happened that no fault may bring about.
"""

import os
import resource
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

from runs import EVAL_EVERY, NOBODY, STEPS, Lost, Run, write_shard


class Skip(Exception):
    """This machine cannot bring the fault about."""


def moment(run, draw, most=0.8):
    """Waits for a random step and then a random time within about one step."""
    reached = run.await_rows(draw.randrange(0, int(most * STEPS)))
    time.sleep(draw.random() * 0.02)
    return reached and run.alive()


def send(run, number):
    struck = run.alive()
    run.process.send_signal(number)
    run.wait()
    return struck


def kill(run, draw):
    """SIGKILL in any step."""
    run.start()
    moment(run, draw)
    return send(run, signal.SIGKILL)


def kill_evaluation(run, draw):
    """SIGKILL around an evaluation."""
    run.start()
    run.await_rows(EVAL_EVERY * draw.randrange(1, STEPS // EVAL_EVERY - 1) - 1)
    time.sleep(draw.random() * 0.02)
    return send(run, signal.SIGKILL)


def kill_save(run, draw):
    """SIGKILL while a checkpoint is written."""
    run.start()
    run.await_rows(draw.randrange(0, int(0.8 * STEPS)))
    struck = run.await_save()
    send(run, signal.SIGKILL)
    return struck


def kill_again(run, draw):
    """SIGKILL five times, each in a run that was resumed."""
    run.start()
    struck = 0
    for count in range(5):
        run.await_rows(run.rows() + draw.randrange(5, 30))
        time.sleep(draw.random() * 0.02)
        struck += send(run, signal.SIGKILL)
        if count < 4 and (run.folder / "config.toml").exists():
            run.note_resume()
            run.start(resume=True)
    return struck >= 3


def stop(run, draw):
    """SIGTERM, SIGINT or SIGHUP: the run saves and ends."""
    run.start()
    moment(run, draw)
    return send(run, draw.choice([signal.SIGTERM, signal.SIGINT, signal.SIGHUP]))


def disk_full(run, draw):
    """A file system of its own fills up."""
    if os.geteuid() != 0:
        raise Skip("a full disk needs root, for a small tmpfs")
    run.place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", run.place], capture_output=True).returncode:
        raise Skip("a full disk needs the right to mount a tmpfs")
    try:
        run.start()
        moment(run, draw)
        struck = run.alive()
        ballast = os.open(run.place / "ballast", os.O_WRONLY | os.O_CREAT)
        try:
            while os.write(ballast, bytes(4096)) > 0:
                pass
        except OSError:
            os.close(ballast)
        run.wait()
        os.unlink(run.place / "ballast")
        run.finish()
        kept = run.place.with_suffix(".kept")
        shutil.copytree(run.place, kept)
    finally:
        subprocess.run(["umount", "-l", run.place], check=True)
    run.place.rmdir()
    kept.rename(run.place)
    return struck


def read_only(run, draw):
    """The folder of the checkpoints, or of the run, can no longer be written to."""
    if os.geteuid() == 0:  # root may write anywhere
        run.user = NOBODY
        run.place.mkdir()
        os.chown(run.place, NOBODY, NOBODY)
        run.output.touch()
    run.start()
    moment(run, draw)
    struck = run.alive()
    folders = [folder for folder in (run.folder, run.folder / "checkpoint") if folder.exists()]
    if draw.random() < 0.5:
        folders = folders[-1:]
    for folder in folders:
        folder.chmod(0o555)
    run.wait()
    for folder in folders:
        folder.chmod(0o755)
    return struck


def clock_jumps(run, draw):
    """The time of day jumps by years, back and forth."""
    library = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
    if library is None:
        raise Skip("clock jumps need libfaketime")
    clock = run.place / "clock"
    run.place.mkdir()
    clock.write_text("+0")
    run.variables = {"LD_PRELOAD": str(library), "FAKETIME_TIMESTAMP_FILE": str(clock), "FAKETIME_NO_CACHE": "1",
                     "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                     # AddressSanitizer wants to be the first library.
                     "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}
    run.start()
    struck = False
    for _ in range(4):
        struck |= run.await_rows(run.rows() + draw.randrange(1, 40)) and run.alive()
        clock.write_text(f"{draw.choice('+-')}{draw.randrange(1, 8000)}d")
    if draw.random() < 0.5:
        send(run, signal.SIGKILL)
    elif run.wait() != 0:
        raise Lost("a clock jump ended the run")
    return struck


def data_replaced(run, draw):
    """The mapped data is replaced by another file, or cut short; it is back before the run is resumed."""
    run.start()
    moment(run, draw)
    struck = run.alive()
    if draw.random() < 0.5:
        other = run.data.with_suffix(".other")
        write_shard(other, seed=8)
        os.replace(other, run.data)
        if draw.random() < 0.5:
            send(run, signal.SIGKILL)
    else:
        os.truncate(run.data, draw.randrange(0, 60_000))
    run.wait()
    again = run.data.with_suffix(".again")
    write_shard(again)
    os.replace(again, run.data)
    return struck


def second_run(run, draw):
    """Other processes want the same folder: they are refused, and the first finishes unharmed.

    The first stands still meanwhile, so that it cannot finish before the others have started.
    """
    run.start()
    moment(run, draw, most=0.3)
    if not (run.folder / "config.toml").exists():
        run.await_rows(1)
    struck = run.alive()
    run.process.send_signal(signal.SIGSTOP)
    try:
        for resume in (False, True):
            second = Run(run.program, run.place)
            second.start(resume)
            code = second.wait()
            if struck and code != 2:
                raise Lost(f"a second run on the same folder was not refused, it ended with {code}")
    finally:
        run.process.send_signal(signal.SIGCONT)
    if run.wait() != 0:
        raise Lost("a second run ended the first")
    return struck


def pick_rank(run, draw):
    deadline = time.monotonic() + 60
    while not run.children() and run.alive() and time.monotonic() < deadline:
        time.sleep(0.01)
    moment(run, draw)
    children = run.children()
    return draw.choice(children) if children else None


def rank_killed(run, draw):
    """SIGKILL of a rank, or of the process that started the ranks."""
    run.start()
    victim = pick_rank(run, draw)
    if draw.random() < 0.3:
        victim = run.process.pid
    children = run.children()
    if victim is not None:
        os.kill(victim, signal.SIGKILL)
    run.wait()
    deadline = time.monotonic() + 30  # the ranks end after the process that started them
    while any(Path(f"/proc/{child}").exists() for child in children) and time.monotonic() < deadline:
        time.sleep(0.02)
    return victim is not None


def rank_paused(run, draw):
    """SIGSTOP of a rank, for a moment, or for good."""
    run.start()
    victim = pick_rank(run, draw)
    if victim is None:
        run.wait()
        return False
    os.kill(victim, signal.SIGSTOP)
    if draw.random() < 0.5:
        time.sleep(draw.random())
        os.kill(victim, signal.SIGCONT)
    run.wait()
    return True


def port_taken(run, draw):
    """The port of the store is in use when the ranks start; then strangers talk to it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
        first = Run(run.program, run.place, variables={**environment, "RANK": "0"})
        first.start()
        if first.wait() != 2:
            raise Lost("a rank did not refuse a port in use")
    ranks = []
    for rank in ("0", "1"):
        one = Run(run.program, run.place, variables={**environment, "RANK": rank})
        one.start()
        ranks.append(one)
    strangers = threading.Thread(target=talk_to, args=(port, draw, ranks[0]))
    strangers.start()
    codes = [one.wait() for one in ranks]
    strangers.join()
    if codes != [0, 0]:
        raise Lost(f"strangers at the port ended the ranks with {codes}")
    return True


def talk_to(port, draw, rank):
    """Connections as strangers make them, until the rank takes its first steps."""
    sockets = []
    while rank.alive() and rank.rows() < 5 and len(sockets) < 300:
        stranger = socket.socket()
        try:
            stranger.connect(("127.0.0.1", port))
            stranger.send(draw.choice([b"", bytes(8), b"GET / HTTP/1.1\r\n\r\n", draw.randbytes(100)]))
        except OSError:
            time.sleep(0.005)
        sockets.append(stranger)
    for stranger in sockets:
        stranger.close()


def out_of_memory(run, draw):
    """The address space may not grow any more (ulimit -v)."""
    run.start()
    moment(run, draw)
    struck = limit(run, resource.RLIMIT_AS, lambda: status(run, "VmSize") + draw.choice([0, 64, 1024]) * 1024)
    time.sleep(draw.random() * 0.3)
    if run.alive() and draw.random() < 0.5:
        run.process.send_signal(signal.SIGTERM)
    run.wait()
    return struck


def file_too_large(run, draw):
    """Files may not grow beyond a few pages (ulimit -f)."""
    run.start()
    moment(run, draw)
    struck = limit(run, resource.RLIMIT_FSIZE, lambda: draw.choice([0, 4096, 65536]))
    run.wait()
    return struck


def status(run, field):
    for line in Path(f"/proc/{run.process.pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError


def limit(run, which, amount):
    try:
        resource.prlimit(run.process.pid, which, (amount(), resource.RLIM_INFINITY))
        return run.alive()
    except (ProcessLookupError, FileNotFoundError):
        return False


ALONE = [kill, kill_evaluation, kill_save, kill_again, stop, disk_full, read_only, clock_jumps, data_replaced,
         second_run, out_of_memory, file_too_large]
RANKS = [rank_killed, rank_paused, port_taken]
KINDS = ALONE + RANKS
