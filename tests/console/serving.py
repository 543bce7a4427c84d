"""A console that is served to a browser or to bare HTTP, in the tests' process."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn

from jmsql.console import Console
from jmsql.testing import wait_for


@dataclass
class Served:
    """Where an application answers."""

    port: int
    server: uvicorn.Server = field(repr=False)
    prefix: str = ""

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def url(self, path: str) -> str:
        return f"{self.origin}{self.prefix}{path}"


@contextmanager
def served(application: Any, prefix: str = "", port: int = 0, **settings: Any) -> Iterator[Served]:
    """Serve an application on a port of this machine."""
    with socket.create_server(("127.0.0.1", port)) as listening:
        config = uvicorn.Config(application, log_config=None, access_log=False, timeout_graceful_shutdown=1, **settings)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            wait_for(lambda: server.started, timeout=60)
            yield Served(listening.getsockname()[1], server, prefix)
        finally:
            server.should_exit = True
            thread.join(60)
            assert not thread.is_alive()
            if isinstance(application, Console):
                application.close()
