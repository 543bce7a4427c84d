"""Requests for pages, and the pages themselves before they are rendered."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from starlette.exceptions import HTTPException
from starlette.requests import Request

from jmsql.admin import Place
from jmsql.console.access import Level, Visitor
from jmsql.console.actions import Actor

NUMBER = re.compile(r"[0-9]{1,19}")


class Form:
    """The fields of a form, each of which may stand there several times."""

    def __init__(self, fields: Sequence[tuple[str, str]]) -> None:
        self._fields = tuple(fields)

    @property
    def digest(self) -> str:
        """A hash of all names and values."""
        return hashlib.sha256(repr(self._fields).encode(errors="surrogatepass")).hexdigest()

    def get(self, name: str) -> str:
        """Return the first value of a field, or an empty text."""
        return next((value for each, value in self._fields if each == name), "")

    @property
    def has_nul(self) -> bool:
        """True if a name or value holds a NUL, but for a selector, of which its parser tells."""
        return any("\0" in name or ("\0" in value and name != "selector") for name, value in self._fields)

    def all(self, name: str) -> list[str]:
        """Return all values of a field."""
        return [value for each, value in self._fields if each == name]


class View:
    """A request for a page."""

    def __init__(self, request: Request, visitor: Visitor, form: Form | None) -> None:
        self._request = request
        self.visitor = visitor
        self.form = form or Form(())
        self.query = Form(request.query_params.multi_items())
        self.base: str = request.scope["jmsql.base"]
        self.path: str = request.scope["path"]
        if self.query.has_nul:
            raise HTTPException(400, "The address holds the character NUL, which no name has.")

    @property
    def is_fragment(self) -> bool:
        """True if the request is for the part of a page that changes. Pages without one are always whole."""
        return bool(self.query.get("live"))

    @property
    def actor(self) -> Actor:
        """The visitor that uses an action."""
        client = self._request.client
        return Actor(self.visitor, client.host if client else "")

    def number(self, name: str) -> int:
        """Return a number of the address.

        Raises:
            HTTPException: It is no number, or too large: there is no such page.
        """
        text = self.part(name)
        if not NUMBER.fullmatch(text) or int(text) >= 2**63:
            raise HTTPException(404)
        return int(text)

    def small_number(self, name: str) -> int:
        """Return the number of a destination."""
        value = self.number(name)
        if value >= 2**31:
            raise HTTPException(404)
        return value

    def part(self, name: str) -> str:
        """Return a part of the address."""
        return str(self._request.path_params[name])


class Notice(NamedTuple):
    """An action's result, shown once on the next page."""

    text: str
    is_problem: bool = False
    more: str = ""
    """The next step, before its link."""
    link: str = ""
    address: str = ""
    """The address of the link, below the console's own."""


@dataclass(frozen=True)
class Reply:
    """A page: a template with its values, or another address to go to."""

    template: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    is_fragment: bool = False
    redirect: str | None = None
    status: int = 200
    notice: Notice | None = None
    """The notice on the page to which an action leads."""


RouteRow: TypeAlias = tuple[str, Callable[[View], Reply], Level, bool]


def message_address(queue_id: int, place: Place) -> str:
    """Return the address of a message below the console's own."""
    table = "delayed" if place.delayed else "present"
    return f"/destinations/{queue_id}/messages/{table}/{place.first}/{place.sequence}"
