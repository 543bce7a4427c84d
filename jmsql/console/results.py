"""The pages of stored results: all of them, and one message's."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import urlencode

from starlette.exceptions import HTTPException

from jmsql.console.access import Level
from jmsql.console.database import Database
from jmsql.console.presentation import indented
from jmsql.console.views import Reply, RouteRow, View
from jmsql.store.administration.looks import LONGEST_TEXT
from jmsql.store.administration.results import (
    STATES,
    TIME_LIMIT,
    queues_that_keep,
    results,
    whole_results,
)
from jmsql.store.receiving.results import uuid_of

_SHOWN = 50
_SUGGESTED = 200
"""How many names of queues are suggested for the filter."""


class ResultPages:
    """Makes the pages of results."""

    def __init__(self, database: Database, *, hidden: bool) -> None:
        self._database = database
        self._hidden = hidden

    def routes(self) -> Iterator[RouteRow]:
        """Return the pages: address, function, the level that a visitor needs, and True if it is for forms."""
        yield "/results", self.results, Level.LOOK, False
        yield "/results/{message_id}", self.result, Level.LOOK, False

    def results(self, view: View) -> Reply:
        """Show results, the last first."""
        queue, state, before = (view.query.get(name) for name in ("queue", "state", "before"))
        if state and state not in STATES:
            raise HTTPException(400, "There is no such state of a result.")
        try:
            work = results(
                queue or None, state or None, before or None, _SHOWN, hidden=self._hidden, time_limit=TIME_LIMIT
            )
            found = self._database.read(work)
        except ValueError as error:
            raise HTTPException(400, "The address does not say before which result the list goes on.") from error
        kept = {name: text for name, text in (("queue", queue), ("state", state)) if text}
        values: dict[str, Any] = {
            "found": found,
            "queue": queue,
            "state": state,
            "states": STATES,
            "suggested": self._database.read(queues_that_keep(_SUGGESTED)),
            "more": None if found.next is None else urlencode(kept | {"before": found.next}),
            "seconds_between": _seconds_between,
            "title": "Results",
        }
        return Reply("results.html", values)

    def result(self, view: View) -> Reply:
        """Show the result of a message; where it has ended in several queues, one for each."""
        uuid = uuid_of(view.part("message_id"))
        ends = [] if uuid is None else self._database.read(whole_results(uuid, hidden=self._hidden))
        if not ends:
            raise HTTPException(404, "No result of this message is stored.")
        values: dict[str, Any] = {
            "ends": [
                (each, _part(each.summary.value, each.value_size), _part(each.text, each.text_size)) for each in ends
            ],
            "message_id": ends[0].summary.message_id,
            "seconds_between": _seconds_between,
            "title": f"Result of {ends[0].summary.message_id}",
        }
        return Reply("result.html", values)


class _Part(NamedTuple):
    """A value or a body as a page shows it."""

    text: str
    size: int
    is_cut: bool


def _part(text: str | None, size: int | None) -> _Part | None:
    if text is None:
        return None
    is_cut = len(text) >= LONGEST_TEXT
    return _Part(text if is_cut else indented(text) or text, size or 0, is_cut)


def _seconds_between(start: datetime | None, end: datetime) -> str:
    """Return how long a handler has taken; nothing where its start is not known."""
    if start is None:
        return ""
    seconds = (end - start).total_seconds()
    return f"{seconds:,.3f} s" if seconds < 10 else f"{seconds:,.0f} s"
