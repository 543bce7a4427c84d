"""Pages that cannot be shown: their status, and advice for the visitor."""

from __future__ import annotations

from typing import NamedTuple

from jmsql.console.database import Database
from jmsql.exceptions import InvalidSelectorException, JMSException, JMSSecurityException, ResourceAllocationException
from jmsql.store.administration import diagnosis
from jmsql.store.administration.diagnosis import NO_LOCK, TOO_LONG, Blocker
from jmsql.store.errors import is_connection_lost

_SHOWN = 3
_INVALID = "22"
"""The class of the SQLSTATEs that say that a value is wrong."""
_CONNECTION = "08"
"""The class of the SQLSTATEs that say that there is no connection, or none any more."""
_NOT_CONNECTED = {"08001", "08004"}
"""The codes of connections that could not be made."""


class Problem(NamedTuple):
    """An answer to a request that failed."""

    status: int
    title: str
    text: str


def explain(database: Database, error: JMSException, *, is_form: bool = False) -> Problem:
    """Return the answer to a request that has failed with an error."""
    code = error.error_code or ""
    if isinstance(error, JMSSecurityException):
        return Problem(403, "Not allowed", str(error))
    if isinstance(error, InvalidSelectorException):
        return Problem(400, "That cannot be understood", str(error))
    if code == NO_LOCK:
        return Problem(503, "A table is locked", f"{error}\n{_held_by(database)}")
    if code == TOO_LONG:
        return Problem(503, "That took too long", f"{error}\nSee what keeps the server busy, then try again.")
    if code.startswith(_INVALID):
        return Problem(400, "That cannot be understood", str(error))
    if is_form and has_unknown_outcome(error):
        advice = "It may have been done, or a part of it. See whether it was, before you do it again."
        return Problem(503, "The outcome is not known", f"{error}\n{advice}")
    if is_form:
        return Problem(409, "Not done", f"{error}\nNothing more was done. Go back, and choose again.")
    if code.startswith(_CONNECTION) or is_connection_lost(error):
        advice = "Check that PostgreSQL runs and can be reached, then try again."
        return Problem(503, "The database does not answer", f"{error}\n{advice}")
    if isinstance(error, ResourceAllocationException):
        return Problem(503, "Too much at once", f"{error}")
    return Problem(503, "The database refuses", f"{error}")


def has_unknown_outcome(error: JMSException) -> bool:
    """Tell whether an action that has failed with an error may have been done: its connection was lost."""
    code = error.error_code or ""
    return code not in _NOT_CONNECTED and (code.startswith(_CONNECTION) or is_connection_lost(error))


def _held_by(database: Database) -> str:
    try:
        with database.runner() as runner:
            blockers = diagnosis.ask(runner, diagnosis.blockers)
    except JMSException as error:
        return f"The console cannot see who locks it: {error}"
    if not blockers:
        return "Who has locked it is gone meanwhile. Try again."
    who = "; ".join(map(_described, blockers[:_SHOWN]))
    ends = ", ".join(f"select pg_terminate_backend({each.process_id})" for each in blockers[:_SHOWN])
    return f"It is locked by {who}. Commit or roll back there, or end it: {ends}. Then try again."


def _described(blocker: Blocker) -> str:
    return f"process {blocker.process_id} of {blocker.user_name!r}, application {blocker.application_name!r}"
