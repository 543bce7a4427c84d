"""Watches what consumers in several threads do with the messages of groups, and finds what they must not."""

from __future__ import annotations

import threading
from collections import defaultdict

from tests.integration.groups.grouped import GroupPlace


class Observer:
    """Knows which messages of each group are being handled, by whom, and which are done.

    A consumer tells it that it is done before it acknowledges: another may get the next message before the
    acknowledgement has returned. If that fails, the message is handled again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str | None, dict[int, object]] = defaultdict(dict)
        self._done: dict[str | None, set[int]] = defaultdict(set)
        self.violations: list[str] = []
        self.handled = 0

    def begun(self, place: GroupPlace, consumer: object) -> None:
        """Note that a consumer has got a message."""
        group, number = place
        with self._lock:
            self.handled += 1
            held = self._held[group]
            if group is not None:
                others = {other for other, holder in held.items() if holder is not consumer}
                if others:
                    self.violations.append(f"{place} was delivered while another consumer held {sorted(others)}")
                missing = set(range(1, number)) - self._done[group] - held.keys()
                if missing:
                    self.violations.append(f"{place} was delivered before {sorted(missing)}")
            if number in self._done[group]:
                self.violations.append(f"{place} was delivered again after it was done")
            held[number] = consumer

    def done(self, places: list[GroupPlace]) -> None:
        """Note that messages are about to be acknowledged."""
        with self._lock:
            for group, number in places:
                self._held[group].pop(number, None)
                self._done[group].add(number)

    def released(self, places: list[GroupPlace]) -> None:
        """Note that messages are about to be released."""
        with self._lock:
            for group, number in places:
                self._held[group].pop(number, None)

    def count_done(self) -> int:
        """How many messages are done."""
        with self._lock:
            return sum(map(len, self._done.values()))
