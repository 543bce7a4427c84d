"""Looking at a queue without taking anything from it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from jmsql.exceptions import IllegalStateException
from jmsql.messages import Message
from jmsql.public_names import set_module

if TYPE_CHECKING:
    from jmsql.selectors import Selector
    from jmsql.store.rows.message_rows import MessageRow
    from jmsql.values.destinations import Queue

    Browse = Callable[[int, Selector | None, tuple[int, int], int], Awaitable[list[MessageRow]]]
    """Reads messages of a queue, by its id and a selector, after a key: so many at most."""


# A browser reads page by page behind the last key, and holds no lock and no snapshot between two pages. So an iteration
# may last for hours, and shows messages that came meanwhile, unless they come before its place.


_PAGE = 100


@set_module("jmsql.asyncio")
class QueueBrowser:
    """Looks at the messages of a queue, in the order in which they would be received (JMS 1.1, chapter 5.9).

    Made by [`Session.create_browser`][jmsql.Session.create_browser]. Each iteration starts at the front. It reads a
    page at a time, so it sees messages that are added or removed behind its place meanwhile. Messages that a session
    has claimed are not shown, nor those that the session itself has sent and not committed.
    """

    def __init__(
        self, queue: Queue, selector: Selector | None, queue_id: int, browse: Browse, check_session: Callable[[], None]
    ) -> None:
        self._browse = browse
        self._check_session = check_session
        self._queue = queue
        self._selector = selector
        self._queue_id = queue_id
        self._closed = False

    @property
    def queue(self) -> Queue:
        """The queue."""
        self._check_open()
        return self._queue

    @property
    def message_selector(self) -> str | None:
        """The selector's text, or None if every message is shown."""
        self._check_open()
        return None if self._selector is None else self._selector.text

    @property
    def enumeration(self) -> AsyncIterator[Message]:
        """A new iteration (JMS's `getEnumeration`).

        Raises:
            IllegalStateException: The browser is closed, as the iteration does once it is.
        """
        return aiter(self)

    def __aiter__(self) -> AsyncIterator[Message]:
        self._check_open()  # now, and not with the first message
        return self._messages()

    async def _messages(self) -> AsyncIterator[Message]:
        after = (-1, 0)
        while True:
            self._check_open()
            rows = await self._browse(self._queue_id, self._selector, after, _PAGE)
            for row in rows:
                yield row.message(self._queue)
            if len(rows) < _PAGE:
                return
            after = (rows[-1].inverse_priority, rows[-1].sequence)

    async def close(self) -> None:
        """Look no more. Closing again does nothing."""
        self._closed = True

    def _check_open(self) -> None:
        self._check_session()
        if self._closed:
            raise IllegalStateException("The browser is closed.")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        selector = "" if self._selector is None else f" selector={self._selector.text!r}"
        return f"<{type(self).__name__} {self._queue}{selector}{' closed' if self._closed else ''}>"
