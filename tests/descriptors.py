"""Descriptors that are larger than `select.select` takes."""

from __future__ import annotations

import fcntl
import resource
import socket

LARGE_DESCRIPTOR = 1100


def allow_descriptors() -> None:
    """Let this process have so many descriptors, if it may not have them already."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < 2 * LARGE_DESCRIPTOR:
        resource.setrlimit(resource.RLIMIT_NOFILE, (2 * LARGE_DESCRIPTOR, hard))


def large_socketpair() -> tuple[socket.socket, socket.socket]:
    """Return a pair of sockets with large descriptors."""
    allow_descriptors()
    one, other = socket.socketpair()
    with one, other:
        return _large(one), _large(other)


def _large(end: socket.socket) -> socket.socket:
    return socket.socket(fileno=fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, LARGE_DESCRIPTOR))
