"""The command `jmsql` (the extra ``cli``)."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Sequence

__all__ = ["main"]


def main() -> None:
    """Run the command with the arguments of this process, and exit."""
    # Loaded modules stay: collecting garbage among them again and again takes a tenth of the time.
    gc.set_threshold(100_000)
    if _subcommand(sys.argv[1:]) == "worker" and hasattr(signal, "SIGHUP"):
        # A hang-up reloads a worker. One that comes before its supervisor is loaded must not end it instead.
        signal.signal(signal.SIGHUP, lambda *_: None)
    try:
        from jmsql.cli.application import run

        try:
            run()
        finally:
            gc.freeze()  # Python would look through all of it once more, which takes a quarter as long as to load it
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in {"typer", "rich"} and "no pq wrapper available" not in str(
            error
        ):
            raise
        print("jmsql: The command needs packages that are not installed: pip install 'jmsql[cli]'", file=sys.stderr)  # noqa: T201
        sys.exit(2)


def _subcommand(arguments: Sequence[str]) -> str | None:
    """Return the subcommand in a command's arguments; None: they name none."""
    rest = iter(arguments)
    for argument in rest:
        if argument in {"--url", "--schema"}:
            next(rest, None)
        elif not argument.startswith("-"):
            return argument
    return None
