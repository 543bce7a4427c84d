"""Tasks of asyncio, by the names that `threads` has for threads: calls, cancellation, blocking, locks and openings.

The client's source imports them from here. The source that is generated for threads imports the same names from
`threads`.
"""

from asyncio import CancelledError, Condition, Event, Lock, sleep

from jmsql.concurrency.tasks.background import BackgroundTask, Home, home
from jmsql.concurrency.tasks.blocking import from_thread, in_thread, is_over, opened_in_thread
from jmsql.concurrency.tasks.calls import InterruptibleCall, call, call_isolated, check_function, entered, obtain
from jmsql.concurrency.tasks.cancellation import (
    Answer,
    Exchange,
    apart,
    detached,
    ends_task,
    finished,
    interruptible,
    is_cancelled,
    is_driven,
    is_failure,
    uninterrupted,
)
from jmsql.concurrency.tasks.identity import calling, current, start_task, unfinished
from jmsql.concurrency.tasks.locks import Notifications, RLock, Turns, at_once, taken_within, unlocked
from jmsql.concurrency.tasks.openings import Opening, opens

__all__ = [
    "Answer",
    "BackgroundTask",
    "CancelledError",
    "Condition",
    "Event",
    "Exchange",
    "Home",
    "InterruptibleCall",
    "Lock",
    "Notifications",
    "Opening",
    "RLock",
    "Turns",
    "apart",
    "at_once",
    "call",
    "call_isolated",
    "calling",
    "check_function",
    "current",
    "detached",
    "ends_task",
    "entered",
    "finished",
    "from_thread",
    "home",
    "in_thread",
    "interruptible",
    "is_cancelled",
    "is_driven",
    "is_failure",
    "is_over",
    "obtain",
    "opened_in_thread",
    "opens",
    "sleep",
    "start_task",
    "taken_within",
    "unfinished",
    "uninterrupted",
    "unlocked",
]
