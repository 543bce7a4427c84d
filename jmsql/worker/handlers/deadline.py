"""The deadline of a handler's call, and which of caller and watcher settles its message then."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from functools import cached_property

from jmsql.values.clock import monotonic

# A time-out is decided twice: the watcher notices that the time is over, and the handler may return in the same moment.
# The watcher's `expire` only notes that the time is over, so that the watcher interrupts the handler. Whichever of
# `returned` and `abandon` comes first under `_lock` settles the message: `returned` raises the TimeoutError to the
# caller, even if the watcher has not looked yet; after it `expire` and `abandon` return False.
#
# In an event loop, `asyncio.timeout` ends the handler, and the watcher acts only if the handler goes on or blocks the
# loop. The limit begins after this deadline, so a cancellation by it always finds the deadline over (`has_caused`).


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop that runs in this thread, if one does."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class Deadline:
    """The deadline of one call.

    Args:
        timeout: How many seconds the handler may take.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._at = monotonic() + timeout
        # The caller of the handler and the watcher both want to settle the message; exactly one may. The lock guards
        # `_is_settling`, `_is_abandoned`, `has_expired` and `_at`: `returned` and `abandon` decide under it who is
        # first.
        self._lock = threading.Lock()
        self._is_settling = False
        self._is_abandoned = False
        self.has_expired = False
        # Set by `returned`; the watcher waits for it before it settles the message itself.
        self._settling = threading.Event()
        self.limit: asyncio.Timeout | None = None
        """The limit that cancels a coroutine function, whose event loop sets it."""
        self.is_over = False
        """True once a coroutine function has ended, with its `around` functions. Written by its event loop."""
        self._loop = running_loop()
        self._raised: type[TimeoutError] | None = None
        """The class of the exception that was raised in the handler's thread. Written by the thread that ends it."""

    def restart(self) -> None:
        """Give the handler its time once more; may be called from any thread.

        Raises:
            TimeoutError: It is too late.
        """
        with self._lock:
            now = monotonic()
            if self.has_expired or self.overdue(now) > 0:
                raise self.error
            self._at = now + self._timeout
        if self._loop is None:
            return
        if running_loop() is self._loop:
            self._reschedule()
        else:
            # asyncio's timeouts are not thread-safe: only the loop's own thread may move them.
            self._loop.call_soon_threadsafe(self._reschedule)

    def _reschedule(self) -> None:
        assert self._loop is not None
        if self.limit is not None and not self.limit.expired():
            with suppress(RuntimeError):  # the handler has returned
                self.limit.reschedule(self._loop.time() + self._timeout)

    def overdue(self, now: float) -> float:
        """Return for how many seconds the handler has taken too long; a negative number while it has time."""
        return now - self._at

    @cached_property
    def error(self) -> TimeoutError:
        """The message's error."""
        return TimeoutError(self._text)

    def error_class(self) -> type[TimeoutError]:
        """Return a class whose objects say the same without arguments, for an exception raised from another thread."""
        text = self._text
        # PyThreadState_SetAsyncExc takes a class and calls it without arguments. A class of its own for each deadline
        # also tells this timeout from the handler's other TimeoutErrors.
        body = {"__init__": lambda self: TimeoutError.__init__(self, text), "__module__": TimeoutError.__module__}
        self._raised = type(TimeoutError.__name__, (TimeoutError,), body)
        return self._raised

    def error_for(self, error: BaseException) -> TimeoutError:
        """Return the error of the deadline, caused by an error that it has caused in the handler.

        The exception that was raised in the handler's thread says the same. It only lends its traceback.
        """
        if self._raised is not None and type(error) is self._raised:
            # The raised object and `self.error` have the same text; as a cause it would print it twice.
            return self.error.with_traceback(error.__traceback__)
        self.error.__cause__ = error
        return self.error

    @property
    def _text(self) -> str:
        return f"The handler has taken longer than its timeout of {self._timeout:g} s."

    def has_caused(self, error: BaseException) -> bool:
        """Tell whether a handler has raised an error since it was ended: in a thread any, in a task its cancellation.

        asyncio's limit begins after this deadline, so it cancels a task only if the deadline has passed.
        """
        if isinstance(error, asyncio.CancelledError):
            return self.overdue(monotonic()) >= 0
        # After the expiry, the watcher has interrupted statements or raised an exception in the thread, so any error
        # may be a consequence of that.
        return self.has_expired and error is not self.error

    def expire(self) -> bool:
        """Say that the handler has taken too long; return False if it has not, has returned, or this is known."""
        with self._lock:
            if self._is_settling or self.has_expired or self.overdue(monotonic()) <= 0:
                return False
            self.has_expired = True
            return True

    def returned(self, error: BaseException | None) -> None:
        """Begin to settle the message, as the handler has ended.

        Raises:
            TimeoutError: It returned too late, even if the watcher has not noticed yet.
        """
        with self._lock:
            # The watcher checks at intervals, so the handler may return late before the watcher has noticed. It has
            # failed all the same: its message's outcome must not depend on the watcher's timing.
            self.has_expired |= self.overdue(monotonic()) > 0
            self._is_settling = not self._is_abandoned
            self._settling.set()
            if self.has_expired and error is not self.error:
                raise self.error from error

    @property
    def is_abandoned(self) -> bool:
        """True if the watcher has settled the message."""
        return self._is_abandoned

    def abandon(self, patience: float) -> bool:
        """Give the handler up if it does not end; return whether the caller has to settle the message.

        Args:
            patience: How many seconds it has for that.
        """
        # Not under the lock, which `returned` needs.
        self._settling.wait(patience)
        with self._lock:
            self._is_abandoned = not self._is_settling
            return self._is_abandoned
