"""File locks of the processes that use an embedded server.

The kernel drops the locks of a process that ends, however it ends, so that nothing is left to clean up.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


@contextmanager
def exclusively(path: Path) -> Iterator[None]:
    """Wait until no other process is inside a block for the same file, then run the block.

    Raises:
        OSError: The file cannot be made or opened.
    """
    descriptor = _open(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class Lease:
    """Held by each process as long as it uses the server. Take it and release it inside `exclusively` only.

    Raises:
        OSError: The file cannot be made or opened.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = _open(path)
        fcntl.flock(self._descriptor, fcntl.LOCK_SH)

    def is_last(self) -> bool:
        """Return whether no other process holds the lease, which this one may lose by the check: release it."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        """Stop holding the lease. In a forked child: forget the parent's, which the parent keeps."""
        os.close(self._descriptor)
