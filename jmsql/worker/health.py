"""The health and readiness of a worker, over HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from jmsql.worker.loading import RefusalError

# The server answers from threads of its own, which read the supervisor's state: a slow client holds up no other, and a
# connection that says nothing ends after `timeout`. It asks for no password, and shows counts and names, but no
# messages.


_QUESTIONS = {"/health": "healthy", "/ready": "ready"}
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


@contextmanager
def health_endpoint(
    host: str, port: int, document: Callable[[], dict[str, Any]], metrics: Callable[[], bytes] | None = None
) -> Iterator[int]:
    """Answer ``GET /health`` and ``GET /ready`` for as long as the block lasts, with 200 or 503 and a JSON document.

    ``GET /metrics`` is answered in Prometheus's text format, if there are metrics.

    Args:
        host: The address to listen on.
        port: The port; 0: any.
        document: Returns the state of the worker, with "healthy" and "ready". Called from any thread.
        metrics: Returns the metrics. Called from any thread.

    Yields:
        The port.

    Raises:
        RefusalError: The port cannot be had.
    """

    class Handler(BaseHTTPRequestHandler):
        timeout = 10.0

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path in _QUESTIONS:
                state = document()
                status = HTTPStatus.OK if state[_QUESTIONS[path]] else HTTPStatus.SERVICE_UNAVAILABLE
                self._answer(status, "application/json", json.dumps(state).encode() + b"\n")
            elif path != "/metrics":
                self.send_error(HTTPStatus.NOT_FOUND)
            elif metrics is None:
                self._answer(HTTPStatus.NOT_IMPLEMENTED, "text/plain", b'Metrics need pip install "jmsql[metrics]".\n')
            else:
                self._answer(HTTPStatus.OK, _PROMETHEUS, metrics())

        def _answer(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Keep quiet: probes come every few seconds."""

    try:
        server = ThreadingHTTPServer((host, port), Handler)
    except (OSError, OverflowError) as error:
        raise RefusalError(f"The health endpoint cannot listen on {host}:{port}: {error}") from error
    server.daemon_threads = True
    with server:
        thread = threading.Thread(target=server.serve_forever, name="health", daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
