"""The pages of batches: all of them, and one."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any, TypeVar
from urllib.parse import urlencode

from starlette.exceptions import HTTPException

from jmsql.console.access import Level
from jmsql.console.database import Database
from jmsql.console.poller import Poller
from jmsql.console.views import NUMBER, Reply, RouteRow, View
from jmsql.messages.properties import BATCH, DEAD_LETTER_REASON
from jmsql.store.administration.batches import BatchSummary, batches, callback_queues

T = TypeVar("T")

_SHOWN = 20
_LAST = 2**63 - 1


class BatchPages:
    """Makes the pages of batches."""

    def __init__(self, database: Database, poller: Poller, *, hidden: bool) -> None:
        self._database = database
        self._poller = poller
        self._hidden = hidden

    def routes(self) -> Iterator[RouteRow]:
        """Return the pages: address, function, the level that a visitor needs, and True if it is for forms."""
        yield "/batches", self.batches, Level.LOOK, False
        yield "/batches/{batch}", self.batch, Level.LOOK, False

    def batches(self, view: View) -> Reply:
        """Show batches, the last first."""
        name, before = view.query.get("name").strip(), _before(view)
        found = self._look(
            view,
            ("batches", name, before),
            lambda: self._database.read(batches(name or None, _SHOWN + 1, before=before)),
        )
        kept = {"name": name} if name else {}
        here = kept if before is None else kept | {"before": str(before)}
        values = {
            "batches": found[:_SHOWN],
            "name": name,
            "more": urlencode(kept | {"before": str(found[_SHOWN - 1].id)}) if len(found) > _SHOWN else None,
            "cursor": urlencode(here),
            "title": "Batches",
        }
        return self._reply(view, "batches.html", values)

    def batch(self, view: View) -> Reply:
        """Show a batch: its counts, and the queues that its end is sent to."""
        number = view.number("batch")
        found = self._look(view, ("batch", number), lambda: self._find(number))
        if found is None:
            raise HTTPException(404)
        summary, callbacks = found
        values = {
            "batch": summary,
            "callbacks": callbacks,
            "searches": None if self._hidden else _searches(number),
            "title": f"Batch {number}",
        }
        return self._reply(view, "batch.html", values)

    def _find(self, number: int) -> tuple[BatchSummary, list[tuple[str, str]]] | None:
        found = self._database.read(batches(None, 1, number=number))
        return (found[0], self._database.read(callback_queues(number))) if found else None

    def _look(self, view: View, key: Hashable, look: Callable[[], T]) -> T:
        """Look for a whole page; the part that stays current may be a moment old, and is one for all."""
        return self._poller.shared(key, look) if view.is_fragment else look()

    def _reply(self, view: View, template: str, values: dict[str, Any]) -> Reply:
        if view.is_fragment:
            self._poller.touch()
        return Reply(template, values, is_fragment=view.is_fragment)


def _searches(number: int) -> dict[str, str]:
    """Return the queries of the search's address that find the messages of a batch that are there."""
    return {
        "waiting": urlencode({"selector": f"{BATCH} = {number} AND {DEAD_LETTER_REASON} IS NULL"}),
        "failed": urlencode({"selector": f"{BATCH} = {number} AND {DEAD_LETTER_REASON} IS NOT NULL"}),
    }


def _before(view: View) -> int | None:
    text = view.query.get("before")
    if not text:
        return None
    if not NUMBER.fullmatch(text) or int(text) > _LAST:
        raise HTTPException(400, "The address does not say before which batch the list goes on.")
    return int(text)
