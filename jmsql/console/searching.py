"""The page that searches the messages of all queues and subscriptions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from starlette.exceptions import HTTPException

from jmsql import InvalidSelectorException
from jmsql.admin import Position
from jmsql.console.access import Level
from jmsql.console.database import Database
from jmsql.console.views import Reply, RouteRow, View, message_address
from jmsql.store.administration import searching
from jmsql.store.administration.results import has_result
from jmsql.store.administration.searching import Found, ListedHit, Terms
from jmsql.store.receiving.results import uuid_of

_SHOWN = 50
_TERMS = {
    "id": "Message ID",
    "correlation": "Correlation ID",
    "group": "Group",
    "type": "Type",
    "property": "Property",
    "selector": "Selector",
}
"""The fields of the form and of the address, with their labels."""


class SearchPages:
    """Makes the page of a search, which its address tells whole."""

    def __init__(self, database: Database, *, hidden: bool) -> None:
        self._database = database
        self._hidden = hidden

    def routes(self) -> Iterator[RouteRow]:
        """Return the pages: address, function, the level that a visitor needs, and True if it is for forms."""
        yield "/messages", self.messages, Level.LOOK, False

    def messages(self, view: View) -> Reply:
        """Show the messages that meet all conditions, and where the search goes on."""
        given = {name: view.query.get(name).strip() for name in _TERMS}
        after = _position(view.query.get("after"))
        found: Found[ListedHit] | None = None
        problem = None
        try:
            selector = _terms(given).parse()
        except InvalidSelectorException as error:
            selector, problem = None, str(error)
        if selector is not None:
            found = self._database.read(searching.listed(selector, after, _SHOWN, hidden=self._hidden))
        kept = {name: text for name, text in given.items() if text}
        values: dict[str, Any] = {
            "given": given,
            "labels": _TERMS,
            "found": found,
            "problem": problem,
            "has_begun": after is None,
            "again": urlencode(kept),
            "more": None if found is None or found.next is None else urlencode(kept | {"after": str(found.next)}),
            "address": message_address,
            "result": _result_of(given["id"], self._database),
            "title": "Search",
        }
        return Reply("messages.html", values)


def _result_of(message_id: str, database: Database) -> str | None:
    """Return the identifier of a message whose result is stored, for the link to it."""
    uuid = uuid_of(message_id)
    return f"ID:{uuid}" if uuid is not None and database.read(has_result(uuid)) else None


def _terms(given: dict[str, str]) -> Terms:
    name, equals, value = given["property"].partition("=")
    if given["property"] and not (name and equals):
        raise InvalidSelectorException("A property is written with its value, such as customer = 7.")
    properties = {name.strip(): value.strip()} if equals else {}
    return Terms(given["id"], given["correlation"], given["group"], given["type"], properties, given["selector"])


def _position(text: str) -> Position | None:
    """Return the position behind which a search goes on; None begins it."""
    if not text:
        return None
    try:
        return Position.parse(text)
    except ValueError as error:
        raise HTTPException(400, "The address does not say after which message the search goes on.") from error
