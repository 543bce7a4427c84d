"""The options of a listener."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypedDict

from jmsql.exceptions import InvalidSelectorException
from jmsql.selectors import Selector
from jmsql.store.receiving.results import Keeping
from jmsql.values.destinations import AnyDestination, Destination, HasDestination, Queue, Topic
from jmsql.values.duration import seconds
from jmsql.values.policies import RedeliveryPolicy, claim_duration
from jmsql.values.rates import AtMost, ListenerLimit, Rate
from jmsql.worker.handlers.dead_letters import DeadLetterHook

# Options are checked where the handler is registered, each by a function that takes the given value and returns the
# value that is kept, and together by `ListenerOptions.check`. A combination that could not hold is refused. The
# functions refuse it where `transacted` decides: a visibility timeout in a transaction, chunks without one. `check`
# refuses the others: results of chunks, a limit of handlers for chunks.


_LARGEST_CHUNK = 1000


@dataclass(frozen=True, kw_only=True)
class ListenerOptions:
    """The options of a listener, as `Application.listener` describes them; times are in seconds.

    An option of your own is a field here, and a parameter of `Router.listener`, which alone makes this.
    """

    selector: str | None
    transacted: bool
    concurrency: int | None
    subscription: str | None
    durable: bool
    redelivery: RedeliveryPolicy | None
    visibility_timeout: float | None
    no_retry_for: tuple[type[Exception], ...]
    timeout: float | None
    reply_to: Queue | Topic | HasDestination | None
    """As it is given; a handler's destination is known once its router is included."""
    on_dead_letter: DeadLetterHook | None
    keep_result: Keeping | None
    """How long the results of its messages are kept; None: they are not."""
    chunk: int | None
    """The most messages of a call; None: it has one, and not a list."""
    chunk_wait: float
    """For how many seconds a chunk waits for more messages."""
    rate: Rate | None
    """How many messages start in a time, over all workers; None: any number."""
    at_most: AtMost | None
    """How many messages are handled at a time, over all workers; None: any number."""

    @property
    def limit(self) -> ListenerLimit | None:
        """The limits over all workers; None: there are none."""
        return None if self.rate is None and self.at_most is None else ListenerLimit(self.rate, self.at_most)

    def check(self, name: str, destination: Destination) -> None:
        """Check the options of a handler against each other.

        Args:
            name: The handler's name, for errors.
            destination: Its destination.

        Raises:
            InvalidSelectorException: The selector has an error.
            ValueError: A topic needs a subscription, a queue has none; or the concurrency is less than 1;
                or results of chunks are to be kept, or chunks have a limit of handlers.
        """
        if isinstance(destination, Topic) and not self.subscription:
            raise ValueError(f"The handler {name} listens to {destination}: name its subscription, subscription='…'.")
        if isinstance(destination, Queue) and self.subscription is not None:
            raise ValueError(f"The handler {name} listens to {destination}, and only topics have subscriptions.")
        if self.concurrency is not None and self.concurrency < 1:
            raise ValueError(f"Expected a concurrency of at least 1 for the handler {name}, got {self.concurrency}.")
        if self.chunk is not None and self.keep_result is not None:
            raise ValueError(f"The handler {name} takes chunks, of which no results are kept: leave out keep_result=…")
        if self.chunk is not None and self.at_most is not None:
            raise ValueError(
                f"The handler {name} takes chunks, and at_most=… would count their messages, not the calls: use "
                "concurrency=… for each process, or rate=…, which counts messages."
            )
        try:
            Selector.parse(self.selector)
        except InvalidSelectorException as error:
            raise InvalidSelectorException(f"The selector of the handler {name}: {error}") from error


class PeriodicOptions(TypedDict, total=False):
    """The options of `Router.listener` that `Router.periodic` hands on.

    The queue is the schedule's own: it has no subscription, and a selector would leave ticks in it.
    """

    transacted: bool
    concurrency: int | None
    redelivery: RedeliveryPolicy | None
    visibility_timeout: float | timedelta | None
    no_retry_for: type[Exception] | Iterable[type[Exception]]
    timeout: float | timedelta | None
    reply_to: AnyDestination | None
    on_dead_letter: DeadLetterHook | None
    keep_result: float | timedelta | None
    chunk: int | None
    chunk_wait: float | timedelta
    rate: Rate | None
    at_most: int | AtMost | None


def exception_classes(classes: type[Exception] | Iterable[type[Exception]]) -> tuple[type[Exception], ...]:
    """Return the exceptions of `no_retry_for`.

    Raises:
        TypeError: It names no exception.
    """
    found = (classes,) if isinstance(classes, type) else tuple(classes)
    for each in found:
        if not (isinstance(each, type) and issubclass(each, Exception)):
            raise TypeError(f"Expected classes of exceptions in no_retry_for, such as ValueError, got {each!r}.")
    return found


def time_limit(name: str, timeout: float | timedelta | None) -> float | None:
    """Return the time limit of a handler in seconds.

    Raises:
        ValueError: It is 0, or negative.
    """
    if timeout is None:
        return None
    duration = seconds(timeout, "timeout")
    if not duration:
        raise ValueError(f"The timeout of the handler {name} must be greater than 0 s.")
    return duration


def chunk_size(name: str, chunk: int | None, *, transacted: bool) -> int | None:
    """Return the most messages of a handler's chunks.

    Raises:
        TypeError: It is no number.
        ValueError: It is less than 1 or more than 1,000, or the handler is not transacted.
    """
    if chunk is None:
        return None
    if isinstance(chunk, bool) or not isinstance(chunk, int):
        raise TypeError(f"Expected chunk as an int, got {chunk!r}.")
    if not 1 <= chunk <= _LARGEST_CHUNK:
        raise ValueError(f"Expected a chunk of 1 to {_LARGEST_CHUNK:,} messages for the handler {name}, got {chunk}.")
    if not transacted:
        raise ValueError(
            f"The handler {name} takes chunks, and is not transacted: a chunk that fails is rolled back before it is "
            "handled in parts. Leave out transacted=False; a handler that does not ask for its database holds no "
            "transaction open."
        )
    return chunk


def redelivery_policy(redelivery: RedeliveryPolicy | None) -> RedeliveryPolicy | None:
    """Return the policy for messages with which a handler fails.

    Raises:
        TypeError: It is no policy.
    """
    if redelivery is not None and not isinstance(redelivery, RedeliveryPolicy):
        raise TypeError(
            f"Expected redelivery as a jmsql.RedeliveryPolicy, such as RedeliveryPolicy(maximum_deliveries=5), "
            f"got {redelivery!r}."
        )
    return redelivery


def start_rate(rate: Rate | None) -> Rate | None:
    """Return how many messages of a handler start in a time.

    Raises:
        TypeError: It is no rate.
    """
    if rate is not None and not isinstance(rate, Rate):
        raise TypeError(f"Expected rate as a jmsql.worker.Rate, such as Rate(5, per=1.0), got {rate!r}.")
    return rate


def most_at_a_time(at_most: int | AtMost | None) -> AtMost | None:
    """Return how many messages of a handler are handled at a time.

    Raises:
        TypeError: It is no number.
        ValueError: It is less than 1, or too large.
    """
    return at_most if at_most is None or isinstance(at_most, AtMost) else AtMost(at_most)


def claim_limit(name: str, limit: float | timedelta | None, *, transacted: bool) -> float | None:
    """Return the visibility timeout of a handler in seconds.

    Raises:
        ValueError: It is less than a second, or the handler is transacted.
    """
    if limit is None:
        return None
    if transacted:
        raise ValueError(f"The handler {name} is transacted: its transaction holds the message, and no claim does.")
    return claim_duration(limit)


def result_keeping(name: str, destination: Destination, keep_result: float | timedelta | None) -> Keeping | None:
    """Return how long a handler keeps results; None: it keeps none.

    Raises:
        ValueError: That is 0, or negative; or the destination is a topic.
    """
    if keep_result is None:
        return None
    duration = seconds(keep_result, "keep_result")
    if not duration:
        raise ValueError(f"The handler {name} keeps results for more than 0 s, or not at all: keep_result=None.")
    if not isinstance(destination, Queue):
        raise ValueError(  # noqa: TRY004 - a destination, of the wrong kind
            f"The handler {name} listens to {destination}, whose messages have an end for each subscription: results "
            "are kept of messages in queues."
        )
    return Keeping(duration)
