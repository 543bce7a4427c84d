"""Messages that a session could not release when its transaction ended."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence

from jmsql.store.control.notifier import Notifier
from jmsql.store.receiving.redelivery import Release, release
from jmsql.store.wire._sync.runner import Runner
from jmsql.values.clock import monotonic


class LateReleases:
    """The duty to release messages for sessions that waited too long for a lock, or lost their connection.

    Args:
        notifier: Tells consumers of the messages.
        retry_delay: The pause in seconds after an attempt that has failed.
        restricted: Whether policies hide something from the role.
    """

    def __init__(self, notifier: Notifier, retry_delay: float, *, restricted: bool) -> None:
        self._notifier = notifier
        self._retry_delay = retry_delay
        self._restricted = restricted
        self._lock = threading.Lock()
        self._releases: list[Release] = []
        self._next_attempt = 0.0

    def add(self, releases: Sequence[Release]) -> None:
        """Release messages soon. May be called from any thread."""
        with self._lock:
            self._releases += releases

    def run(self, control: Runner) -> None:
        """Release the messages, if it is time to."""
        if not self._releases or monotonic() < self._next_attempt:
            return
        with self._lock:
            releases = list(self._releases)
        self._next_attempt = monotonic() + self._retry_delay
        control.run(release(releases, restricted=self._restricted))
        with self._lock:
            del self._releases[: len(releases)]
        self._next_attempt = 0.0
        self._notifier.returned([each.key for each in releases])

    def seconds_to_next(self) -> float:
        """Return in how many seconds messages are to be released."""
        return max(0.0, self._next_attempt - monotonic()) if self._releases else math.inf
