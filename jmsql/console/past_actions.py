"""The page of administrators' past actions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from starlette.exceptions import HTTPException

from jmsql.console.access import Level
from jmsql.console.database import Database
from jmsql.console.views import NUMBER, Reply, RouteRow, View
from jmsql.store.administration.activity import LAST, Activity, activity

_SHOWN = 50
_IDS_SHOWN = 20


class ActivityPages:
    """Makes the page of actions."""

    def __init__(self, database: Database, *, hidden: bool) -> None:
        self._database = database
        self._hidden = hidden

    def routes(self) -> Iterator[RouteRow]:
        """Return the pages: address, function, the level that a visitor needs, and True if it is for forms."""
        yield "/activity", self.activity, Level.LOOK, False

    def activity(self, view: View) -> Reply:
        """Show actions, the last first."""
        search = view.query.get("search").strip()
        look = activity(search or None, _before(view), _SHOWN, hidden=self._hidden)
        found, following = self._database.read(look)
        more = None if following is None else urlencode({"search": search, "before": following})
        values: dict[str, Any] = {
            "found": found,
            "search": search,
            "more": more,
            "most_ids": _IDS_SHOWN,
            "place": _place,
            "query": urlencode,
            "title": "Activity",
        }
        return Reply("activity.html", values)


def _before(view: View) -> int:
    text = view.query.get("before")
    if not text:
        return LAST
    if not NUMBER.fullmatch(text) or int(text) > LAST:
        raise HTTPException(400, "The address does not say before which action the list goes on.")
    return int(text)


def _place(each: Activity) -> str:
    """Return the query of the address that leads to the destination of an action."""
    fields = {"destination": each.destination, "subscription": each.subscription, "client_id": each.client_id}
    return urlencode({name: value for name, value in fields.items() if value})
