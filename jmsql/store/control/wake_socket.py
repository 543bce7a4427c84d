"""A socket that wakes a thread from waiting for its connection to the server."""

from __future__ import annotations

import contextlib
import socket

from jmsql.concurrency.readiness import wait_until_ready
from jmsql.store.errors import translate


class WakeSocket:
    """A pair of sockets: any thread writes into one, and the thread that waits selects the other."""

    def __init__(self) -> None:
        try:
            self._receiver, self._sender = socket.socketpair()
        except OSError as error:
            raise translate(error, "connecting") from error
        for end in (self._receiver, self._sender):
            end.settimeout(0)

    def fileno(self) -> int:
        """Return the socket to select beside the connection."""
        return self._receiver.fileno()

    def wake(self) -> None:
        """Wake the thread; may be called from any."""
        # It may be full, so that the thread will wake anyway, or closed.
        try:  # noqa: SIM105 - this is called for each send
            self._sender.send(b"\0")
        except OSError:
            pass

    def drain(self) -> None:
        """Forget the calls of `wake` so far."""
        with contextlib.suppress(BlockingIOError):
            while self._receiver.recv(4096):
                pass

    def wait(self, seconds: float) -> None:
        """Wait for `wake`, and for nothing else."""
        wait_until_ready([self._receiver], seconds)
        self.drain()

    def close(self) -> None:
        """Close both sockets."""
        self._receiver.close()
        self._sender.close()
