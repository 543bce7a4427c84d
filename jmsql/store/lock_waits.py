"""Limits on waits for locks, for statements beside a session's open transaction.

PostgreSQL finds no deadlock that leads through a client: a statement on one of its connections waits for a lock, whose
holder waits for the transaction on another.
"""

from __future__ import annotations

from typing import NamedTuple

from jmsql.exceptions import JMSException
from jmsql.store.statement import Query, SqlFile, Steps, nothing, records

NO_LOCK = "55P03"
"""The code of a statement that has waited for a lock for longer than `lock_timeout`."""

_LONGEST_QUERY = 100
"""Characters of another session's statement that an error shows."""


class _Holder(NamedTuple):
    process_id: int
    user: str | None
    application: str | None
    query: str | None

    def __str__(self) -> str:
        query = (self.query or "").strip()
        shown = query if len(query) <= _LONGEST_QUERY else f"{query[:_LONGEST_QUERY]}…"
        return f"process {self.process_id} of user {self.user!r}, application {self.application!r} ({shown})"


_sql = SqlFile("lock_waits")
_limit = _sql.statement("limit", "limiting waits for locks", nothing)
_holders = _sql.statement("holders", "looking for locks", records(_Holder._make))


def limit_lock_waits(seconds: float) -> Query[None]:
    """Limit the waits for locks of the transaction in which this runs."""
    return _limit.bind(limit=f"{round(seconds * 1000)}ms")


def given_up(error: JMSException, seconds: float) -> Steps[JMSException]:
    """Return the error of a statement that has waited too long for a lock, with the sessions that have it."""
    holders: list[_Holder] = yield from _holders.bind()
    who = " and ".join(map(str, holders)) or "another transaction, perhaps one of this client's own,"
    doing = str(error).partition(":")[0]
    return JMSException(
        f"{doing}: given up after {seconds:g} s. {who[0].upper()}{who[1:]} holds or awaits a lock that this needs, and "
        "may wait for an open transaction of this client. End the transaction, then do it again.",
        NO_LOCK,
    )
