"""The connections to PostgreSQL of this process, of which a forked child keeps none."""

from __future__ import annotations

import os
import socket
from typing import Any
from weakref import WeakSet

import psycopg

_living: WeakSet[psycopg.BaseConnection[Any]] = WeakSet()


def close_in_forked_children(connection: psycopg.BaseConnection[Any]) -> None:
    """Have the copy of a connection closed that a forked child of this process inherits.

    A child that outlives its parent would keep the socket open: the server would not see that the client is dead, and
    would hold its claims and locks until a time-out.
    """
    _living.add(connection)


def _close_inherited() -> None:
    # Closing the connection would tell the server to end it, which serves the parent. Closing its descriptor would free
    # the number for the next file, to which the copy might write. So a socket takes its place that leads nowhere.
    closed, other = socket.socketpair()
    other.close()
    with closed:
        for connection in list(_living):
            try:
                descriptor = connection.fileno()
            except psycopg.OperationalError:  # it was closed
                continue
            os.dup2(closed.fileno(), descriptor, inheritable=False)
    _living.clear()


os.register_at_fork(after_in_child=_close_inherited)
