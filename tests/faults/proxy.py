"""A proxy between a client and PostgreSQL that cuts the connection at a chosen point, or falls silent."""

from __future__ import annotations

import contextlib
import ctypes
import socket
import struct
import threading
from collections.abc import Callable
from enum import Enum
from types import TracebackType
from typing import Self

from sqlalchemy import make_url

_SO_ATTACH_FILTER = 26
_KEEP_NOTHING = ctypes.create_string_buffer(struct.pack("@HBBI", 0x06, 0, 0, 0))  # BPF_RET | BPF_K


class CutPoint(Enum):
    """Where the connection is cut, seen from a request of the client's."""

    BEFORE_REQUEST = "the server does not get the request"
    BEFORE_RESPONSE = "the server does what the request says, and the client does not hear of it"


class CuttingProxy:
    """Passes all that clients and a server say to each other on, but cuts connections now and then.

    Args:
        server_url: The server's URL.
        cut_at: Which of the client's requests, counted over all connections, is cut; None: none is.
        cut_point: Where.
        on_request: Called with what a client says, before it is passed on.
        on_response: Called with what the server says, before it is passed on.
    """

    def __init__(
        self,
        server_url: str,
        cut_at: int | None = None,
        cut_point: CutPoint = CutPoint.BEFORE_REQUEST,
        on_request: Callable[[bytes], object] = bytes,
        on_response: Callable[[bytes], object] = bytes,
    ) -> None:
        self._server_url = make_url(server_url)
        self._cut_at = cut_at
        self._cut_point = cut_point
        self._on_request = on_request
        self._on_response = on_response
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._cut_next: CutPoint | None = None
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.requests = 0
        """How many requests of the client's have come."""
        self._run(self._accept)

    @property
    def url(self) -> str:
        """The URL that leads through the proxy."""
        port = self._listener.getsockname()[1]
        query = {name: value for name, value in self._server_url.query.items() if name not in {"host", "port"}}
        url = self._server_url.set(host="127.0.0.1", port=port, query=query)
        return url.update_query_dict({"sslmode": "disable", "gssencmode": "disable"}).render_as_string(
            hide_password=False
        )

    def cut(self, cut_point: CutPoint) -> None:
        """Cut the connection of the next request to come."""
        with self._lock:
            self._cut_next = cut_point

    def swallow(self) -> None:
        """Have the kernel drop every packet to this proxy from now on, and acknowledge none: not on new connections."""
        self.forget_connections()
        _deafen(self._listener)

    def forget_connections(self) -> None:
        """Have the kernel drop the packets of the open connections, as a firewall does, and let others be made."""
        with self._lock:
            for end in self._sockets:
                with contextlib.suppress(OSError):  # it is closed
                    _deafen(end)

    def close(self) -> None:
        """End all connections."""
        with self._lock:
            sockets = [self._listener, *self._sockets]
        for end in sockets:
            _cut(end)
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _connect(self) -> socket.socket:
        host = self._server_url.query.get("host") or self._server_url.host or "localhost"
        port = int(str(self._server_url.query.get("port") or self._server_url.port or 5432))
        assert isinstance(host, str)
        if host.startswith("/"):
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(f"{host}/.s.PGSQL.{port}")
            except OSError:
                server.close()
                raise
            return server
        return socket.create_connection((host, port))

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                try:
                    server = self._connect()
                except OSError:  # the server is down
                    _cut(client)
                    continue
                with self._lock:
                    self._sockets += [client, server]
                cut_response = threading.Event()
                self._run(self._pass_requests, client, server, cut_response)
                self._run(self._pass_responses, client, server, cut_response)

    def _pass_requests(self, client: socket.socket, server: socket.socket, cut_response: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 20):
                self._on_request(data)
                cut_point = self._next_cut_point()
                if cut_point is CutPoint.BEFORE_REQUEST:
                    break
                if cut_point is CutPoint.BEFORE_RESPONSE:
                    cut_response.set()
                server.sendall(data)
        _cut(client)
        _cut(server)

    def _next_cut_point(self) -> CutPoint | None:
        """Count a request; tell whether its connection is to be cut, and where."""
        with self._lock:
            cut_point = self._cut_point if self.requests == self._cut_at else self._cut_next
            self._cut_next = None
            self.requests += 1
            return cut_point

    def _pass_responses(self, client: socket.socket, server: socket.socket, cut_response: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while (data := server.recv(1 << 20)) and not cut_response.is_set():
                self._on_response(data)
                client.sendall(data)
        _cut(client)
        _cut(server)


def _deafen(end: socket.socket) -> None:
    program = struct.pack("@HP", len(_KEEP_NOTHING.raw) // 8, ctypes.addressof(_KEEP_NOTHING))
    end.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)


def _cut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
