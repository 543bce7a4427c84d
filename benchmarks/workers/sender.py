"""``python -m benchmarks.workers.sender APPLICATION``: send what the standard input asks for, a line at a time.

A line has the number of the first message, and how many there are. The answer is when the call that sends began, by the
monotonic clock. The first line that it writes says that it is ready.
"""

from __future__ import annotations

import importlib
import sys
import time


def main() -> None:
    """Serve the standard input until its end."""
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever a library prints
    with importlib.import_module(sys.argv[1]).sending() as send:
        print("ready", file=answers, flush=True)
        for line in sys.stdin:
            first, count = map(int, line.split())
            started = time.monotonic()
            send(first, count)
            print(started, file=answers, flush=True)


if __name__ == "__main__":
    main()
