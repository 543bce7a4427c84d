"""Access to the console: by an application's decision, a token, a password, or a proxy's header."""

from __future__ import annotations

import base64
import hashlib
import hmac
import inspect
import math
import secrets
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from starlette.requests import Request

from jmsql.logs import contained_logger
from jmsql.public_names import set_module
from jmsql.values.clock import monotonic

logger = contained_logger("jmsql.console")

_AT_ONCE = 10
"""How many sign-ins of an address may fail at once."""
_SECONDS_EACH = 6.0
"""Seconds after which one more may."""
_LONGEST_NAME = 100
_MOST_ADDRESSES = 10_000


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
    def refusal(self, request: Request) -> Refusal:
        """Return the answer for a visitor without access."""

    def reminder(self, request: Request) -> dict[str, str]:  # noqa: ARG002 - most gates give none
        """Return cookies for the answer to a visitor."""
        return {}

    def admission(self, request: Request) -> dict[str, str]:  # noqa: ARG002 - most gates give none
        """Return cookies by which a visitor is known again, where the address of this request has admitted one."""
        return {}


class Attempts:
    """Failed attempts to sign in, by address: ten at once, and one more every six seconds.

    The log has a line for each, without the secret, and for the first that is refused unseen.
    """

    def __init__(self) -> None:
        self._full_until: dict[
            str, float
        ] = {}  # in seconds of the monotonic clock: the time at which none is left over

    def failed(self, address: str, name: str) -> None:
        """Count and log an attempt that has failed."""
        now = monotonic()
        self._full_until[address] = max(now, self._full_until.get(address, now)) + _SECONDS_EACH
        logger.warning("A sign-in as %r from %s has failed.", name[:_LONGEST_NAME], address)
        if self.pause(address):
            logger.warning("Further sign-ins from %s are refused for some seconds each.", address)
        if len(self._full_until) > _MOST_ADDRESSES:
            self._full_until = {each: until for each, until in self._full_until.items() if until > now}

    def pause(self, address: str) -> float:
        """Return the seconds until an address may try again; 0: it may."""
        rest = self._full_until.get(address, 0.0) - monotonic() - _SECONDS_EACH * (_AT_ONCE - 1)
        return max(0.0, rest)

    def refusal(self, address: str) -> Refusal | None:
        """Return the answer to an address that has to wait; None: it may try."""
        pause = math.ceil(self.pause(address))
        if not pause:
            return None
        advice = f"Too many sign-ins from this address have failed. Try again in {pause} s."
        return Refusal(429, advice, {"Retry-After": str(pause)})


def _address(request: Request) -> str:
    return request.client.host if request.client else ""


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

    def refusal(self, request: Request) -> Refusal:  # noqa: ARG002 - the same for all
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
        self._attempts = Attempts()

    async def visitor(self, request: Request) -> Visitor | None:
        proof = request.cookies.get(self._cookie, "")
        if hmac.compare_digest(proof.encode(), self._proof.encode()):
            return Visitor("token", Level.OPERATE)
        if self.PARAMETER not in request.query_params or self._attempts.pause(_address(request)):
            return None
        if self._has_token(request):
            return Visitor("token", Level.OPERATE)
        self._attempts.failed(_address(request), "token")
        return None

    def _has_token(self, request: Request) -> bool:
        given = request.query_params.get(self.PARAMETER, "")
        return hmac.compare_digest(given.encode(), self._token.encode())

    def admission(self, request: Request) -> dict[str, str]:
        is_new = self.PARAMETER in request.query_params and self._has_token(request)
        return {self._cookie: self._proof} if is_new else {}

    def refusal(self, request: Request) -> Refusal:
        return self._attempts.refusal(_address(request)) or Refusal(
            403,
            "Open the whole address that `jmsql console` has printed: the token in it is the key. A console that was "
            "started again has another one.",
            {},
        )


class PasswordGate(Gate):
    """Asks for a password, by HTTP Basic; any user name will do, and stands in the log.

    After some failures, an address has to wait before its password is looked at, right or wrong: else guessing would
    not be slower. Browsers that have signed in are known by a cookie, and do not wait for the failures of others.
    """

    _COOKIE = "jmsql-console-known"

    def __init__(self, password: str) -> None:
        self._password = password.encode()
        self._known = secrets.token_hex(32)
        self._attempts = Attempts()

    async def visitor(self, request: Request) -> Visitor | None:
        scheme, _, encoded = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "basic":
            return None
        if self._attempts.pause(_address(request)) and not self._is_known(request):
            return None
        try:
            name, _, password = base64.b64decode(encoded, validate=True).partition(b":")
        except ValueError:
            name, password = b"", b""
        visitor = Visitor(name.decode(errors="replace"), Level.OPERATE)
        if hmac.compare_digest(password, self._password):
            return visitor
        self._attempts.failed(_address(request), visitor.name)
        return None

    def _is_known(self, request: Request) -> bool:
        return hmac.compare_digest(request.cookies.get(self._COOKIE, "").encode(), self._known.encode())

    def reminder(self, request: Request) -> dict[str, str]:
        return {} if self._is_known(request) else {self._COOKIE: self._known}

    def refusal(self, request: Request) -> Refusal:
        return self._attempts.refusal(_address(request)) or Refusal(
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

    def refusal(self, request: Request) -> Refusal:  # noqa: ARG002 - the same for all
        return Refusal(403, f"Come through the proxy, which says in {self._header} who you are.", {})
