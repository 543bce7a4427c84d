"""Reporting errors on a connection's own threads to the application."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from jmsql.concurrency.tasks import Lock, call_isolated, check_function, is_failure
from jmsql.exceptions import JMSException
from jmsql.logs import contained_logger

logger = contained_logger("jmsql")


# The control connection's thread and the sessions' call this listener, one at a time: test_calls_do_not_overlap
# protects `_lock`. An exception of the listener is logged and goes no further: its caller is a jmsql thread with other
# duties.


class OnException(Protocol):
    """An object whose method is called with a connection's problems."""

    def on_exception(self, exception: JMSException, /) -> object:
        """Take note of a problem."""


ExceptionListener = Callable[[JMSException], object] | OnException
"""A listener for a connection's problems: a callable, or an object with `on_exception`."""


class ExceptionListening:
    """A connection's exception listener, which is called with one problem at a time."""

    def __init__(self, of: object) -> None:
        self._of = of
        self._lock = Lock()
        self._listener: ExceptionListener | None = None

    @property
    def listener(self) -> ExceptionListener | None:
        """The listener, if there is one."""
        return self._listener

    @listener.setter
    def listener(self, listener: ExceptionListener | None) -> None:
        if listener is not None:
            check_function(_function_of(listener))
        self._listener = listener

    async def notify(self, error: JMSException) -> None:
        """Call the listener with a problem, if there is one."""
        listener = self._listener
        if listener is None:
            return
        async with self._lock:
            try:
                await call_isolated(_function_of(listener), error)
            except BaseException as raised:  # also sys.exit(): message listeners go on
                if not is_failure(raised):
                    raise
                logger.exception("The exception listener of %r failed with %r.", self._of, error)


def _function_of(listener: ExceptionListener) -> Callable[[JMSException], object]:
    if callable(listener):
        return listener
    if callable(getattr(listener, "on_exception", None)):
        return listener.on_exception
    raise TypeError(
        f"Expected an exception listener, a callable or an object with on_exception(exception), got {listener!r}."
    )
