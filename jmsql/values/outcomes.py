"""Exceptions that a handler or a listener can raise to choose its message's outcome."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from jmsql.public_names import set_module
from jmsql.values.duration import seconds

REJECTED: Final = "rejected"
UNREADABLE: Final = "unreadable"
MAXIMUM_RETRIES: Final = "maximum retries"
"""Why a message is a dead letter: `JMS_jmsql_DeadLetterReason`. Messages that expire have another."""


@set_module("jmsql.worker")
class Reject(Exception):
    """Raised by a handler: its message moves to the dead-letter queue now, and is not delivered again.

    The transaction of the handler is rolled back. The dead letter has the reason ``rejected``, and the
    traceback as its error, with that of the exception that it was raised from.

    Listeners of consumers can raise it too, and `rollback` and `recover` of a session take it as their error.

    Args:
        reason: Why, in a few words.
        index: The place of the message in the list that a handler of chunks was called with; the others are handled
            without it. None: the chunk is halved until the message is alone. Elsewhere it says nothing.

    Raises:
        TypeError: `index` is no number.
    """

    dead_letter_reason = REJECTED

    def __init__(self, reason: str = "", *, index: int | None = None) -> None:
        super().__init__(reason)
        if index is not None and (isinstance(index, bool) or not isinstance(index, int)):
            raise TypeError(f"index is an int, not {index!r}.")
        self.index = index

    @property
    def error(self) -> BaseException:
        """The error that is kept with the dead letter."""
        return self


class RejectBecause(Reject):
    """Says that a message moves to the dead-letter queue because of an error, which is kept with it."""

    def __init__(self, error: BaseException, dead_letter_reason: str = REJECTED, *, index: int | None = None) -> None:
        super().__init__(str(error), index=index)
        self._error = error
        self.dead_letter_reason = dead_letter_reason

    @property
    def error(self) -> BaseException:
        return self._error


@set_module("jmsql.worker")
class RetryAfter(Exception):
    """Raised by a handler: its message is delivered again after a delay, and the delivery does not count as failed.

    It is for work that is not wrong but not yet possible: a service that is closed, a limit on calls. The transaction
    of the handler is rolled back. The redelivery policy, its delays and its `maximum_deliveries`, does not apply;
    JMSXDeliveryCount counts each delivery, as JMS says.

    Listeners of consumers can raise it too, and `rollback` and `recover` of a session take it as their error.

    Args:
        delay: Seconds (or a `timedelta`) until the message is delivered again.
        reason: Why, in a few words, for the log.
        maximum_retries: How often one message can be put off like this. The next time it moves to the dead-letter
            queue, with the reason ``maximum retries``.

    Raises:
        TypeError: The delay is no duration, or `maximum_retries` no number.
        ValueError: The delay is negative, or longer than a hundred years; or `maximum_retries` is less than 1.
    """

    def __init__(self, delay: float | timedelta, reason: str = "", *, maximum_retries: int = 1000) -> None:
        super().__init__(delay, reason)
        self.delay = seconds(delay, "delay")
        self.reason = reason
        if isinstance(maximum_retries, bool) or not isinstance(maximum_retries, int):
            raise TypeError(f"maximum_retries is an int, not {maximum_retries!r}.")
        if maximum_retries < 1:
            raise ValueError(f"maximum_retries is at least 1, not {maximum_retries}.")
        self.maximum_retries = maximum_retries

    def __str__(self) -> str:
        return f"again in {self.delay:g} s" + (f": {self.reason}" if self.reason else "")


class Interruption(Exception):
    """The reason for which a worker that ends releases the message of a handler: the delivery has not failed."""

    def __init__(self, text: str = "The worker has ended before the handler.") -> None:
        super().__init__(text)


class CancelledMessage(Interruption):
    """The reason for which a handler's work is rolled back whose message was cancelled, and is not there any more."""

    def __init__(self) -> None:
        super().__init__("The message was cancelled.")


class LostClaim(Interruption):
    """The reason for which a handler's work is rolled back whose claim is gone: another client gets the message."""

    def __init__(self) -> None:
        super().__init__("The claim of the message was lost.")
