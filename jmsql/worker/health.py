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

__all__ = ["health_endpoint"]


@contextmanager
def health_endpoint(host: str, port: int, document: Callable[[], dict[str, Any]]) -> Iterator[int]:
    """Answer ``GET /health`` and ``GET /ready`` for as long as the block lasts, with 200 or 503 and a JSON document.

    Args:
        host: The address to listen on.
        port: The port; 0: any.
        document: Returns the state of the worker, with "healthy" and "ready". Called from any thread.

    Yields:
        The port.

    Raises:
        RefusalError: The port cannot be had.
    """

    class Handler(BaseHTTPRequestHandler):
        timeout = 10.0

        def do_GET(self) -> None:
            question = {"/health": "healthy", "/ready": "ready"}.get(self.path.partition("?")[0])
            if question is None:
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            state = document()
            body = json.dumps(state).encode() + b"\n"
            self.send_response(HTTPStatus.OK if state[question] else HTTPStatus.SERVICE_UNAVAILABLE)
            self.send_header("Content-Type", "application/json")
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
