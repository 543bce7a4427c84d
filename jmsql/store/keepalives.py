"""Noticing that the other side of a connection is gone without a word: its host, or the network between.

TCP by itself waits for hours. A peer that does not answer is asked three times, and given up after 25 seconds at most;
so is one that does not acknowledge what was sent to it. Both sides do this: the client, so that its calls return, and
the server, so that the transactions and locks of a client that is gone end.
"""

from __future__ import annotations

import os
from collections.abc import Container
from typing import Any

import psycopg

__all__ = ["READER_SETTINGS", "ask_server_for_keepalives", "keepalive_parameters"]

_IDLE = 10
"""Seconds of silence after which the peer is asked whether it is there."""
_INTERVAL = 5
"""Seconds between two questions."""
_COUNT = 3
"""Questions without an answer after which the peer is given up."""
_UNACKNOWLEDGED = 20_000
"""Milliseconds after which it is given up if it does not acknowledge what was sent."""
_CONNECT = 10
"""Seconds that connecting may take, for each address of the server."""

_PARAMETERS = {
    "keepalives_idle": _IDLE,
    "keepalives_interval": _INTERVAL,
    "keepalives_count": _COUNT,
    "tcp_user_timeout": _UNACKNOWLEDGED,
    "connect_timeout": _CONNECT,
}
_SETTINGS = {
    "tcp_keepalives_idle": _IDLE,
    "tcp_keepalives_interval": _INTERVAL,
    "tcp_keepalives_count": _COUNT,
    "tcp_user_timeout": _UNACKNOWLEDGED,
}

READER_SETTINGS = tuple(
    f"set local {name} = {value}" for name, value in _SETTINGS.items() if name != "tcp_user_timeout"
)
"""Statements that have the server notice, within the transaction, that a reader is gone which may pause in a result.

To the server, one that takes nothing for a while looks like one that does not acknowledge."""


def keepalive_parameters(given: Container[str]) -> dict[str, int]:
    """Return libpq's parameters by which a client notices that the server is gone. They do nothing on a Unix socket.

    Args:
        given: The names of the parameters that the user gives, which are left as they are, as is
            the definition of a service.
    """
    if "service" in given or "PGSERVICE" in os.environ:
        return {}
    return {
        name: value
        for name, value in _PARAMETERS.items()
        if name not in given and not (name == "connect_timeout" and "PGCONNECT_TIMEOUT" in os.environ)
    }


def ask_server_for_keepalives(connection: psycopg.Connection[Any]) -> None:
    """Have the server notice that this client is gone, unless its own settings, or the user's `options`, do so sooner.

    Args:
        connection: A connection to PostgreSQL itself, in autocommit mode.
    """
    if connection.info.host.startswith(("/", "@")):
        return
    chosen = connection.info.options
    wanted = {name: value for name, value in _SETTINGS.items() if name not in chosen}
    if wanted:
        connection.execute(
            "select set_config(w.name, "
            "least(nullif(current_setting(w.name)::integer, 0), w.value)::text, false) "
            "from unnest(%s::text[], %s::integer[]) as w (name, value)",
            [list(wanted), list(wanted.values())],
            prepare=False,
        )
