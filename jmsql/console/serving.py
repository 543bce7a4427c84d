"""The server of `jmsql console`: uvicorn, with a limit on the time that a request takes to arrive."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_TIMEOUT = 15.0
"""Seconds after which a connection is closed whose request has not arrived whole."""


class PunctualProtocol(H11Protocol):
    """HTTP for clients that send each request, with its body, within `REQUEST_TIMEOUT`.

    uvicorn alone waits without limit for the rest of a request, so that a few hundred half requests use up the server.
    """

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_deadline()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Set a deadline where a request is to come. More of its bytes do not postpone it."""
        is_complete = self.conn.their_state not in {h11.IDLE, h11.SEND_BODY}
        if is_complete or self.transport.is_closing():
            self._forget_deadline()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(REQUEST_TIMEOUT, self.transport.abort)

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def server(application: Any, *, root_path: str = "") -> uvicorn.Server:
    """Return a server that answers no WebSocket, believes no header of a proxy, and logs no requests."""
    return uvicorn.Server(
        uvicorn.Config(
            application, http=PunctualProtocol, ws="none", log_config=None, log_level="warning", access_log=False,
            root_path=root_path, proxy_headers=False, server_header=False, timeout_graceful_shutdown=2,
        )
    )  # fmt: skip
