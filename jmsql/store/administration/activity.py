"""The actions of administrators: a program's remarks on them, and the lines that they leave."""

from datetime import datetime
from typing import Any, NamedTuple

from jmsql.public_names import set_module
from jmsql.store.statement import (
    Query,
    SqlFile,
    Steps,
    optional_value,
    records,
    row_count,
    value,
)
from jmsql.values.postgresql_text import from_postgresql, to_postgresql

_WINDOW = 5000
"""How many lines a look reads that searches them."""
LAST = 2**63 - 1
"""A number above every line's."""


@set_module("jmsql.admin")
class Activity(NamedTuple):
    """An action of an administrator: a row of the view ``activity``."""

    number: int
    """Its number; later actions have higher ones."""
    at: datetime
    """When its first step was done, by the server's clock."""
    ended_at: datetime
    """When its last step was done."""
    user_name: str
    """The role of PostgreSQL that has connected."""
    role_name: str | None
    """The role that it had assumed with ``SET ROLE``; None: none."""
    actor: str | None
    """The person, as the program says: the user of the console or of the shell."""
    application: str | None
    """The connection's ``application_name``."""
    host: str | None
    """The address that the connection came from; None: a socket of the server's machine."""
    action: str
    """Such as ``purge`` or ``pause``."""
    destination: str | None
    """The queue, or the topic of the subscription, such as ``queue://orders``."""
    subscription: str | None
    client_id: str | None
    """The client identifier of the subscription."""
    target: str | None
    """The queue to which messages were moved."""
    selector: str | None
    """The selector that chose messages; None: all, or the named ones."""
    details: str | None
    """The settings with their former values, a schedule's name, a role, and the like."""
    messages: int | None
    """How many messages it has changed; None: it was not about messages."""
    message_ids: list[str]
    """Their JMSMessageIDs, at most the first 1,000."""
    outcome: str
    """``done``; of a cancelled message ``removed`` or ``asked``; ``begun`` if the removal of a day of the history broke
    off, which the next pruning completes."""


def _to_activity(row: tuple[Any, ...]) -> Activity:
    found = Activity._make(row)
    return found._replace(
        actor=_read(found.actor),
        subscription=_read(found.subscription),
        client_id=_read(found.client_id),
        selector=_read(found.selector),
        details=_read(found.details),
    )


def _read(text: str | None) -> str | None:
    return from_postgresql(text) if text else None


_sql = SqlFile("activity")
_activity = _sql.statement("activity", "looking at the activity", records(_to_activity), {"shown": _sql["shown"]})
_end_of_window = _sql.statement("end_of_window", "looking at the activity", optional_value(int))
_set_days = _sql.statement("set_days", "changing how long the activity is kept", row_count)
activity_days = _sql.statement("days", "looking at the configuration", value(int)).bind()
"""How many days lines are kept."""


def every_activity(search: str | None, before: int, limit: int) -> Steps[list[Activity]]:
    """Return actions as `activity` does, but read on until there are so many."""
    found: list[Activity] = []
    place: int | None = before
    while place is not None and len(found) < limit:
        some, place = yield from activity(search, place, limit - len(found))
        found += some
    return found


def activity(
    search: str | None, before: int, limit: int, *, hidden: bool = False
) -> Steps[tuple[list[Activity], int | None]]:
    """Return actions, the last first, and the number before which to go on.

    Args:
        search: A part of a name, of the details or of the selector, or a whole JMSMessageID; None: all.
        before: The number of the action before which they were done.
        limit: How many at most.
        hidden: Leave out the selectors, and the details of actions on messages, which tell of properties and errors.
    """
    text = to_postgresql(search) if search else None
    found = yield from _activity.bind(search=text, before=before, window=_WINDOW, limit=limit, hidden=hidden)
    if hidden:
        found = [_hide(each) for each in found]
    if len(found) == limit:
        return found, found[-1].number
    return found, (yield from _end_of_window.bind(before=before, window=_WINDOW))


def _hide(each: Activity) -> Activity:
    details = each.details if each.messages is None else each.details and "hidden"
    return each._replace(selector=each.selector and "hidden", details=details)


def set_activity_days(days: int) -> Query[int]:
    """Change how many days lines are kept."""
    return _set_days.bind(days=days)
