#!/usr/bin/env python3
"""gluon watch under many clients: clients.py PROGRAM RUN [--clients 500] [--rounds 10] [--slow 200]

Every client asks for the page's data, reads the answer and asks again, all at once, while `--slow` connections send a
request byte by byte. Prints how long answers took; exits 1 when one is missing.
"""

import argparse
import asyncio
import sys
import time

from soak import resident, start_watch

REQUEST = b"GET /data.json HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def ask(port):
    begin = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(REQUEST)
    answer = await reader.read()
    writer.close()
    return time.monotonic() - begin if answer.startswith(b"HTTP/1.1 200 ") else None


async def client(port, rounds):
    return [await ask(port) for _ in range(rounds)]


async def drip(port):
    """A connection that never completes its request, and comes back when it is closed."""
    while True:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            while not reader.at_eof():
                writer.write(b"G")
                await asyncio.sleep(0.1)
            writer.close()
        except OSError:
            pass


async def crowd(port, options):
    slow = [asyncio.ensure_future(drip(port)) for _ in range(options.slow)]
    await asyncio.sleep(0.5)
    results = await asyncio.gather(*(client(port, options.rounds) for _ in range(options.clients)))
    for one in slow:
        one.cancel()
    return [seconds for result in results for seconds in result]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("run")
    parser.add_argument("--clients", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--slow", type=int, default=200)
    options = parser.parse_args()
    watch, address = start_watch(options.program, options.run)
    try:
        begin = time.monotonic()
        answers = asyncio.run(crowd(int(address.split(":")[2].strip("/")), options))
        seconds, memory = time.monotonic() - begin, resident(watch.pid)
    finally:
        watch.kill()
        watch.wait()
    good = sorted(answer for answer in answers if answer is not None)
    print(f"{options.clients} clients and {options.slow} slow connections: {len(good)} of {len(answers)} answers in "
          f"{seconds:.1f} s; median {1000 * good[len(good) // 2]:.0f} ms, "
          f"99 % within {1000 * good[len(good) * 99 // 100]:.0f} ms, all within {1000 * good[-1]:.0f} ms; "
          f"{memory:.0f} MiB")
    sys.exit(0 if len(good) == len(answers) else 1)


if __name__ == "__main__":
    main()
