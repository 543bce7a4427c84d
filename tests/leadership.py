"""Who does the maintenance: nobody, where a test wants to do it itself, or wants none."""

from __future__ import annotations

from typing import LiteralString

from jmsql.store.maintenance.maintenance import Maintenance
from jmsql.store.rows.message_rows import MessageKey
from jmsql.store.wire._sync.runner import Runner
from jmsql.timings import InternalTimings
from tests.slowness import scaled

LEADER: LiteralString = """
    select l.connection_id from jmsql_internal.leadership l join jmsql_internal.connection using (connection_id)
    where l.expires_at > clock_timestamp()"""

SUSPEND_MAINTENANCE: LiteralString = """
    insert into jmsql_internal.leadership (connection_id, expires_at) values (null, 'infinity')
    on conflict (singleton) do update set connection_id = excluded.connection_id, expires_at = excluded.expires_at"""

POSTPONE_MAINTENANCE: LiteralString = SUSPEND_MAINTENANCE.replace(
    "'infinity'", f"clock_timestamp() + '{scaled(0.5)} s'"
)
"""Clients that live for less than half a second, on a usual machine, do none.

The first run costs as much as to connect and send.
"""


def maintain(runner: Runner) -> list[MessageKey]:
    """Do what is due, without the lease; return the messages that dead clients held."""
    released: list[MessageKey] = []
    Maintenance(InternalTimings()).do_all(runner, 0, released)
    return released
