"""The pages of the clients' current work: all consumers, and one connection."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any, TypeVar

from starlette.exceptions import HTTPException

from jmsql.console.access import Level
from jmsql.console.database import Database
from jmsql.console.poller import Poller
from jmsql.console.views import Reply, RouteRow, View
from jmsql.store.administration import looks
from jmsql.store.administration.limits import LimitNow, limits_now
from jmsql.store.administration.now import (
    ConsumerNow,
    HeldMessage,
    Rates,
    connection_now,
    consumers_now,
    held_messages,
    usual_times,
)
from jmsql.store.statement import Steps

T = TypeVar("T")

_SHOWN = 50
_HELD_SHOWN = 100
_LIMITS_SHOWN = 20


class NowPages:
    """Makes the pages of consumers and connections."""

    def __init__(self, database: Database, poller: Poller, *, hidden: bool) -> None:
        self._database = database
        self._poller = poller
        self._hidden = hidden
        self._rates = Rates()

    def routes(self) -> Iterator[RouteRow]:
        """Return the pages: address, function, the level that a visitor needs, and True if it is for forms."""
        yield "/now", self.now, Level.LOOK, False
        yield "/connections/{connection}", self.connection, Level.LOOK, False

    def now(self, view: View) -> Reply:
        """Show each consumer's current work, the slow ones first."""
        found, limits, usual = self._look(view, "now", self._find_now)
        values = {
            "consumers": found[:_SHOWN],
            "has_more": len(found) > _SHOWN,
            "limits": limits,
            "usual": usual,
            "title": "Now",
            "cursor": "",
        }
        return self._reply(view, "now.html", values)

    def _find_now(self) -> tuple[list[ConsumerNow], list[LimitNow], dict[int, float]]:
        def found() -> Steps[tuple[list[ConsumerNow], list[LimitNow], dict[int, float]]]:
            consumers = yield from consumers_now(_SHOWN + 1)
            limits = yield from limits_now(_LIMITS_SHOWN)
            return consumers, limits, (yield from usual_times([each.number for each in consumers]))

        consumers, limits, usual = self._database.read(found())
        return self._rates.of(consumers), limits, usual

    def connection(self, view: View) -> Reply:
        """Show a connection: its client, its destinations, and the messages that it holds."""
        number = view.number("connection")
        client, consumers, held, named, usual = self._look(
            view, ("connection", number), lambda: self._database.read(self._found(number))
        )
        if client is None and not held and not consumers:
            raise HTTPException(404)
        values = {
            "number": number,
            "client": client,
            "consumers": self._rates.of(consumers),
            "held": held[:_HELD_SHOWN],
            "has_more": len(held) > _HELD_SHOWN,
            "named": named,
            "usual": usual,
            "title": f"Connection {number}",
        }
        return self._reply(view, "connection.html", values)

    def _look(self, view: View, key: Hashable, look: Callable[[], T]) -> T:
        """Look for a whole page; the part that stays current may be a moment old, and is one for all."""
        return self._poller.shared(key, look) if view.is_fragment else look()

    def _found(
        self, number: int
    ) -> Steps[tuple[looks.ClientLook | None, list[ConsumerNow], list[HeldMessage], Any, dict[int, float]]]:
        clients = yield from connection_now(number)
        consumers = yield from consumers_now(_SHOWN, connection_id=number)
        held = yield from held_messages(number, _HELD_SHOWN + 1)
        found = yield from looks.destinations(list(dict.fromkeys(each.queue_id for each in held)))
        named = {each.queue_id: each for each in found if each.exists}
        usual = yield from usual_times([each.number for each in consumers])
        return clients[0] if clients else None, consumers, held, named, usual

    def _reply(self, view: View, template: str, values: dict[str, Any]) -> Reply:
        shown = values | {"hidden_notes": self._hidden}
        if view.is_fragment:
            self._poller.touch()
        return Reply(template, shown, is_fragment=view.is_fragment)
