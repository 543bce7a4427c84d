"""Tasks of asyncio, by the names that `threads` has for threads: calls, cancellation, blocking, locks and openings.

The client's source imports them from here. The source that is generated for threads imports the same names from
`threads`.
"""

from asyncio import CancelledError, Condition, Event, Lock, sleep

from jmsql.concurrency.tasks.background import BackgroundTask, CallGuard, owning_loop
from jmsql.concurrency.tasks.blocking import from_thread, in_thread, is_over, opened_in_thread
from jmsql.concurrency.tasks.calls import InterruptibleCall, call, call_isolated, check_function, entered, obtain
from jmsql.concurrency.tasks.cancellation import (
    Answer,
    Exchange,
    ends_task,
    in_own_task,
    interruptible,
    is_cancelled,
    is_driven,
    is_failure,
    run_detached,
    run_to_completion,
    shielded,
)
from jmsql.concurrency.tasks.identity import calling, current, start_task, unfinished
from jmsql.concurrency.tasks.locks import Notifications, RLock, Turns, taken_within, try_acquire, wait_until_unlocked
from jmsql.concurrency.tasks.openings import Opening, async_resource

__all__ = [
    "Answer",
    "BackgroundTask",
    "CallGuard",
    "CancelledError",
    "Condition",
    "Event",
    "Exchange",
    "InterruptibleCall",
    "Lock",
    "Notifications",
    "Opening",
    "RLock",
    "Turns",
    "async_resource",
    "call",
    "call_isolated",
    "calling",
    "check_function",
    "current",
    "ends_task",
    "entered",
    "from_thread",
    "in_own_task",
    "in_thread",
    "interruptible",
    "is_cancelled",
    "is_driven",
    "is_failure",
    "is_over",
    "obtain",
    "opened_in_thread",
    "owning_loop",
    "run_detached",
    "run_to_completion",
    "shielded",
    "sleep",
    "start_task",
    "taken_within",
    "try_acquire",
    "unfinished",
    "wait_until_unlocked",
]
