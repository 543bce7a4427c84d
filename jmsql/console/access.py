"""Who may look, and who may do something: what an application decides, a token, a password, or a proxy's header."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from starlette.requests import Request

from jmsql.public_names import set_module


@set_module("jmsql.console")
class Level(IntEnum):
    """The rights of a visitor."""

    LOOK = 1
    """Read pages."""

    OPERATE = 2
    """Read pages, and use the actions of the console."""


@set_module("jmsql.console")
class Visitor(NamedTuple):
    """The person that a request comes from; the log of actions has the name."""

    name: str
    level: Level


Access: TypeAlias = Callable[[Request], "Visitor | Level | Awaitable[Visitor | Level | None] | None"]
"""Decides who may look and who may operate: None refuses. It may be a coroutine function."""


class Refusal(NamedTuple):
    """The text for a visitor without any rights."""

    status: int
    advice: str
    headers: dict[str, str]


class Gate(ABC):
    """Tells visitors from strangers."""

    @abstractmethod
    async def visitor(self, request: Request) -> Visitor | None:
        """Return the visitor, or None for a stranger."""

    @abstractmethod
    def refusal(self) -> Refusal:
        """Return what a stranger is told."""

    def admission(self, request: Request) -> dict[str, str]:  # noqa: ARG002 - most gates give none
        """Return cookies by which a visitor is known again, where the address of this request has admitted one."""
        return {}


class AccessGate(Gate):
    """Asks a function of the application."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def visitor(self, request: Request) -> Visitor | None:
        found = self._access(request)
        if inspect.isawaitable(found):
            found = await found
        if found is None or isinstance(found, Visitor):
            return found
        if isinstance(found, Level):
            return Visitor("", found)
        raise TypeError(f"`access` returns a Visitor, a Level or None, not {found!r}.")

    def refusal(self) -> Refusal:
        return Refusal(403, "You may not look at this console. Sign in to the application, or ask who runs it.", {})


class TokenGate(Gate):
    """Admits those who know a token: it stands in the address that the command prints, and in a cookie afterwards.

    Args:
        token: The token.
        port: The console's port; cookies are shared between the ports of a host.
    """

    PARAMETER = "token"

    def __init__(self, token: str, port: int) -> None:
        self._token = token
        self._cookie = f"jmsql-console-{port}"
        self._proof = hmac.new(token.encode(), b"jmsql console", hashlib.sha256).hexdigest()

    async def visitor(self, request: Request) -> Visitor | None:
        proof = request.cookies.get(self._cookie, "")
        is_known = hmac.compare_digest(proof.encode(), self._proof.encode()) or self._has_token(request)
        return Visitor("token", Level.OPERATE) if is_known else None

    def _has_token(self, request: Request) -> bool:
        given = request.query_params.get(self.PARAMETER, "")
        return hmac.compare_digest(given.encode(), self._token.encode())

    def admission(self, request: Request) -> dict[str, str]:
        is_new = self.PARAMETER in request.query_params and self._has_token(request)
        return {self._cookie: self._proof} if is_new else {}

    def refusal(self) -> Refusal:
        return Refusal(
            403,
            "Open the whole address that `jmsql console` has printed: the token in it is the key. A console that was "
            "started again has another one.",
            {},
        )


class PasswordGate(Gate):
    """Asks for a password, by HTTP Basic; any user name will do, and stands in the log."""

    def __init__(self, password: str) -> None:
        self._password = password.encode()

    async def visitor(self, request: Request) -> Visitor | None:
        scheme, _, encoded = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "basic":
            return None
        try:
            name, _, password = base64.b64decode(encoded, validate=True).partition(b":")
        except binascii.Error:
            return None
        if not hmac.compare_digest(password, self._password):
            return None
        return Visitor(name.decode(errors="replace"), Level.OPERATE)

    def refusal(self) -> Refusal:
        return Refusal(
            401, "This console asks for a password.", {"WWW-Authenticate": 'Basic realm="jmsql", charset="UTF-8"'}
        )


class HeaderGate(Gate):
    """Takes the user's name from a header, if a trusted proxy has set it."""

    def __init__(self, header: str, proxies: Collection[str]) -> None:
        self._header = header
        self._proxies = frozenset(proxies)

    async def visitor(self, request: Request) -> Visitor | None:
        peer = request.scope.get("jmsql.peer") or (request.client.host if request.client else "")
        names = request.headers.getlist(self._header)
        if peer not in self._proxies or len(names) != 1 or not names[0].strip():
            return None
        return Visitor(names[0].strip(), Level.OPERATE)

    def refusal(self) -> Refusal:
        return Refusal(403, f"Come through the proxy, which says in {self._header} who you are.", {})
