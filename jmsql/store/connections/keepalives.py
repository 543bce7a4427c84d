"""Noticing that the other side of a connection is gone without a word: its host, or the network between.

TCP by itself waits for hours. A silent peer is probed three times; then the connection ends, by default after at most
25 seconds. It also ends if the peer does not acknowledge sent data. Both sides do this: the client, so that its calls
return, and the server, so that the transactions and locks of a client that is gone end.
"""

from __future__ import annotations

import os
from collections.abc import Container
from typing import Any

import psycopg

from jmsql.timings import Timings

_COUNT = 3
"""Questions without an answer after which the peer is given up."""


def reader_settings(timings: Timings) -> list[str]:
    """Return statements by which the server notices, within the transaction, that a reader is gone.

    It may pause in the middle of a result: to the server, one that takes nothing for a while looks like one that does
    not acknowledge.
    """
    return [f"set local {name} = {value}" for name, value in _settings(timings).items() if name != "tcp_user_timeout"]


def keepalive_parameters(given: Container[str], timings: Timings) -> dict[str, int]:
    """Return libpq's parameters by which a client notices that the server is gone. They do nothing on a Unix socket.

    Args:
        given: The names of the parameters that the user gives, which are left as they are, as is
            the definition of a service.
        timings: The other parameters.
    """
    if "service" in given or "PGSERVICE" in os.environ:
        return {}
    parameters = {
        "keepalives_idle": timings.keepalives_idle,
        "keepalives_interval": timings.keepalives_interval,
        "keepalives_count": _COUNT,
        "tcp_user_timeout": round(timings.tcp_user_timeout * 1000),
        "connect_timeout": timings.connect_timeout,
    }
    return {
        name: value
        for name, value in parameters.items()
        if name not in given and not (name == "connect_timeout" and "PGCONNECT_TIMEOUT" in os.environ)
    }


def keepalive_settings(
    connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any], timings: Timings
) -> dict[str, int]:
    """Return the server's settings by which it notices that this client is gone: the most that each is to be.

    Args:
        connection: A new connection. None through a Unix socket, and none that the user's `options` set.
        timings: How soon.
    """
    if connection.info.host.startswith(("/", "@")):
        return {}
    chosen = connection.info.options
    return {name: value for name, value in _settings(timings).items() if name not in chosen}


def _settings(timings: Timings) -> dict[str, int]:
    """Return the server's settings by which it notices that a client is gone."""
    return {
        "tcp_keepalives_idle": timings.keepalives_idle,
        "tcp_keepalives_interval": timings.keepalives_interval,
        "tcp_keepalives_count": _COUNT,
        "tcp_user_timeout": round(timings.tcp_user_timeout * 1000),
    }
