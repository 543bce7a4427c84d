"""Redelivery policies and visibility timeouts: decisions only, no I/O."""

import math
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from jmsql.exceptions import IllegalStateException
from jmsql.public_names import set_module
from jmsql.timings import jitter as spread
from jmsql.values.destinations import AnyQueue, require_queue
from jmsql.values.duration import seconds

DEFAULT_DEAD_LETTER_QUEUE = "DLQ"
"""Where dead letters go if a policy that limits deliveries names no queue."""

_LONGEST = timedelta(days=36_500).total_seconds()
"""Longer delays make no sense, and PostgreSQL's timestamps end somewhere."""

MOST_ERRORS = 20
"""With so many errors a message moves to the dead-letter queue, if no policy says anything else."""

MOST_INTERRUPTIONS = 20
"""So many deliveries of a message that a worker interrupts when it ends do not count as failed; later ones do."""

_DELAYS_AFTER_ERRORS = (0.0, 0.1, 0.5, 2.0, 10.0, 60.0, 300.0, 600.0, 1800.0, 3600.0, 9000.0)
"""Together about a day, until there were too many errors."""


@set_module("jmsql")
@dataclass(frozen=True, slots=True)
class RedeliveryPolicy:
    """How often a message is delivered, and after which delays, while its deliveries fail.

    The delay after the first failed delivery is `delay`; each further one is `multiplier` times as long, up to
    `maximum_delay`. A message whose deliveries have failed `maximum_deliveries` times moves to the dead-letter queue.

    Args:
        maximum_deliveries: How often a message is delivered at most; None: until it is acknowledged.
        delay: Seconds (or a `timedelta`) before the first redelivery; 0: at once, in the old place.
        multiplier: The factor from each delay to the next: at least 1.
        maximum_delay: The longest delay; None: any.
        jitter: The share of each delay by which it is made longer or shorter at random: 0 to 1. So messages that failed
            together do not come back together.
        dead_letter_queue: The queue for messages that were delivered `maximum_deliveries` times, or its name, or its
            handler; None: ``DLQ``.

    Raises:
        InvalidDestinationException: The dead-letter queue cannot be one, such as a topic.
        TypeError: A value is of the wrong type.
        ValueError: A value is out of its bounds, or a dead-letter queue is named which nothing would ever come to.
    """

    maximum_deliveries: int | None = None
    delay: float | timedelta = 0.0
    multiplier: float = 1.0
    maximum_delay: float | timedelta | None = None
    jitter: float = 0.0
    dead_letter_queue: AnyQueue | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "delay", seconds(self.delay, "delay"))
        if self.maximum_delay is not None:
            object.__setattr__(self, "maximum_delay", seconds(self.maximum_delay, "maximum_delay"))
        most = self.maximum_deliveries
        if most is not None and (isinstance(most, bool) or not isinstance(most, int)):
            raise TypeError(f"maximum_deliveries is an int or None, not {most!r}.")
        if most is not None and not 1 <= most < 2**31:
            raise ValueError(f"maximum_deliveries is at least 1, or None for any number, not {most}.")
        if not (1 <= _number(self.multiplier, "multiplier") < math.inf):
            raise ValueError(f"multiplier is at least 1, not {self.multiplier!r}: delays do not become shorter.")
        if not 0 <= _number(self.jitter, "jitter") <= 1:
            raise ValueError(f"jitter must be between 0 and 1, got {self.jitter!r}.")
        if self.maximum_delay is not None and self.maximum_delay < self.delay:  # type: ignore[operator] # see above
            raise ValueError(f"maximum_delay, {self.maximum_delay} s, is less than delay, {self.delay} s.")
        if self.dead_letter_queue is not None:
            with suppress(IllegalStateException):  # until its router is included, a handler stays as it is given
                object.__setattr__(self, "dead_letter_queue", require_queue(self.dead_letter_queue).name)
            if most is None:
                raise ValueError(
                    f"Nothing would come to the dead-letter queue {self.dead_letter_queue!r}: say after how many "
                    "deliveries, maximum_deliveries=…."
                )

    def is_exhausted(self, failures: int) -> bool:
        """Tell whether a message is delivered no more after so many deliveries that failed."""
        return self.maximum_deliveries is not None and failures >= self.maximum_deliveries

    def delay_after(self, failures: int) -> float:
        """Return how many seconds a message waits after so many deliveries that failed: at least one."""
        if not self.delay:
            return 0.0
        longest = math.inf if self.maximum_delay is None else float(self.maximum_delay)  # type: ignore[arg-type]
        try:
            delay = min(float(self.delay) * float(self.multiplier) ** (failures - 1), longest)  # type: ignore[arg-type]
        except OverflowError:
            delay = longest
        return min(delay, _LONGEST) * (1 + self.jitter * spread.uniform(-1, 1))


def dead_letter_queue_of(policy: RedeliveryPolicy) -> str | None:
    """Return the name of a policy's dead-letter queue; None: the policy names none.

    Raises:
        IllegalStateException: It is given by a handler whose router no application includes yet.
    """
    given = policy.dead_letter_queue
    return given if given is None or isinstance(given, str) else require_queue(given).name


def delay_after_error(errors: int) -> float:
    """Return how many seconds a message waits for which no policy says it, after so many errors.

    It comes again at once after the first error, which may have been the moment's, and then ever later.
    """
    return _DELAYS_AFTER_ERRORS[min(errors, len(_DELAYS_AFTER_ERRORS)) - 1]


def claim_duration(limit: float | timedelta) -> float:
    """Return a visibility timeout in seconds.

    Raises:
        TypeError: It is no duration.
        ValueError: It is less than a second: claims are extended, and checked, about once a second.
    """
    duration = seconds(limit, "visibility_timeout")
    if duration < 1:
        raise ValueError(f"visibility_timeout is at least 1 s, not {duration:g} s.")
    return duration


def _number(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is a number, not {value!r}.")
    return value
