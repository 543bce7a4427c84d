"""A cache of the entries that were used last."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, Generic, TypeVar
from weakref import WeakSet

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class RecentlyUsed(Generic[K, V]):
    """Keeps the values of the keys that were used last. Its methods may be called from any thread."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[K, V] = OrderedDict()
        self.unlock()
        _living.add(self)

    def unlock(self) -> None:
        """Begin with a lock that no thread holds."""
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        """Return the value of a key; None: it has none, or was not used for long."""
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key]

    def __setitem__(self, key: K, value: V) -> None:
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            if len(self._values) > self._most:
                self._values.popitem(last=False)


_living: WeakSet[RecentlyUsed[Any, Any]] = WeakSet()


def _unlock_all() -> None:
    """In a forked child: a thread of the parent may hold a lock, and none of the child's would release it."""
    for each in list(_living):
        each.unlock()


os.register_at_fork(after_in_child=_unlock_all)
