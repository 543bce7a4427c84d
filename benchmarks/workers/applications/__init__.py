"""An application for each worker, as its documentation writes them, and what sends to it.

Each is imported by the worker's own command and by `benchmarks.workers.sender`, and finds its database and its broker
in the environment. Its context manager `sending` yields what sends so many messages, numbered from the first one on: a
single one with a commit or a confirmation of its own, several as fast as the peer can.
"""

from collections.abc import Callable

Send = Callable[[int, int], None]
"""Sends messages: the number of the first, and how many."""
