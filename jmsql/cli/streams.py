"""The standard streams of the command: stand-ins for closed ones, and the end of a command that cannot use them."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from typing import Any, NoReturn

import typer

BROKEN_PIPE = 128 + signal.SIGPIPE
STREAM_ERROR = 74
"""EX_IOERR of sysexits.h."""

_REFUSALS = {errno.EBADF, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC}
"""Errors of reading and writing an open file."""


class _Remarks(io.FileIO):
    """A file that drops what it cannot write, as on a full disk: no command and no server ends for a remark."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(data)


def prepare_streams() -> None:
    """Replace standard streams that the caller has closed, for which Python has None, and have remarks never fail.

    Otherwise the next connection would get their descriptors. Reading standard input and writing standard output fail
    then, so that no command takes its messages for printed.
    """
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_WRONLY), "r")
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    elif isinstance(sys.stderr, io.TextIOWrapper):
        remarks = io.BufferedWriter(_Remarks(sys.stderr.fileno(), "w", closefd=False))
        sys.stderr = io.TextIOWrapper(remarks, sys.stderr.encoding, line_buffering=True)


def discard_output() -> None:
    """Drop the output that is still buffered, which Python would try to write at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def end_after(error: OSError) -> NoReturn:
    """End the command, whose output or input has failed with this error. Any other error is raised again."""
    if isinstance(error, BrokenPipeError):
        discard_output()
        sys.exit(BROKEN_PIPE)
    if error.filename is not None or error.errno not in _REFUSALS:
        raise error
    typer.echo(f"jmsql: Standard input or output failed: {error.strerror}.", err=True)
    discard_output()
    sys.exit(STREAM_ERROR)
