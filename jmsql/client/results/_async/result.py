"""A message's result: its state, the value that the handler has returned, or the error with which it has failed."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self
from uuid import UUID

from jmsql.client._async.connection.connection import Connection
from jmsql.client._async.connection.context import JMSContext
from jmsql.client._async.session.session import Session
from jmsql.client.asynchronous_enlistment import endings_of_caller
from jmsql.exceptions import IllegalStateException, JobFailed
from jmsql.public_names import set_module
from jmsql.store.receiving.results import UNKNOWN, channel_of, find_ending, find_result, uuid_of
from jmsql.values.clock import monotonic
from jmsql.values.duration import seconds
from jmsql.values.result_state import ResultState

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from jmsql.client._async.shared.endings import Endings
    from jmsql.client.asynchronous_enlistment import Enlistable
    from jmsql.concurrency.tasks import Notifications
    from jmsql.store.receiving.results import Ending
    from jmsql.store.rows.message_rows import GroupKey, MessageKey

# A wait for a result is told by a notification, and also reads after pauses that double from 0.05 to 1 s: the client
# that has stored the result may die before it notifies (decision 76). The notified number is made of the last digits of
# the message's identifier. Several messages may share it, and a wait woken for another one reads once too often.
#
# One read comes before the registration, and another one after it: a result that was stored in between is not notified
# again.


_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0
"""Longest pause between two polls for a result, in seconds; the pause doubles up to this."""


@set_module("jmsql.asyncio")
class Result:
    """The state of a message, and its result, as they were when it was last looked at.

    Made by [`result`][jmsql.asyncio.result]. A listener keeps the results of its messages if it is registered with
    [`keep_result`][jmsql.worker.Application.listener]; of any other message this has the state alone.

    Attributes:
        id: JMSMessageID, which begins with "ID:", as it was given.
    """

    def __init__(self, endings: Endings, message_id: str) -> None:
        self.id = message_id
        self._uuid = uuid_of(message_id)
        self._endings = endings
        self._ending = UNKNOWN

    @property
    def state(self) -> ResultState:
        """The state: a `str` such as "waiting" or "done"."""
        return ResultState(self._ending.state)

    @property
    def is_finished(self) -> bool:
        """True if the message has ended: done, failed, expired or cancelled."""
        return self.state.is_final

    @property
    def value(self) -> Any:
        """The value that the handler has returned, as JSON has it; None unless the message is done."""
        return None if self._ending.value is None else json.loads(self._ending.value)

    @property
    def error(self) -> str | None:
        """The last error of a message that has failed, or is tried again, with its traceback."""
        return self._ending.error

    @property
    def deliveries(self) -> int:
        """How often the message was delivered, the last time included."""
        return self._ending.deliveries

    @property
    def progress(self) -> float | None:
        """The part that is done, from 0 to 1, as the running handler has reported it; None: it has not."""
        return self._ending.progress

    @property
    def note(self) -> str | None:
        """The note of the running handler's last report of its progress."""
        return self._ending.note

    @property
    def destination(self) -> str | None:
        """The queue or topic that the message is in, or was in when it ended; None: it is gone."""
        return self._ending.destination

    @property
    def sent_at(self) -> datetime | None:
        """When the message was sent, in UTC."""
        return self._ending.sent_at

    @property
    def started_at(self) -> datetime | None:
        """When the handler was called that runs, or has returned; None: none was, or it is not known."""
        return self._ending.started_at

    @property
    def finished_at(self) -> datetime | None:
        """When the message ended; None: it has not."""
        return self._ending.finished_at

    @property
    def next_attempt(self) -> datetime | None:
        """When a message that waits is delivered at the earliest; None: at once."""
        return self._ending.next_attempt

    @property
    def kept_until(self) -> datetime | None:
        """When the result is removed; None: no result is kept."""
        return self._ending.kept_until

    async def refresh(self) -> Self:
        """Look again, and return this.

        Raises:
            IllegalStateException: The connection is closed.
            JMSException: The server could not be asked.
        """
        self._ending = UNKNOWN if self._uuid is None else await self._endings.read(find_ending, self._uuid)
        return self

    async def get(self, timeout: float | timedelta | None = 30.0) -> Any:
        """Wait until the message has ended, and return the value that its handler has returned.

        A jmsql connection is notified of the result. A target with your own transaction, such as a SQLAlchemy session,
        is notified through a jmsql connection of this process to the same database; without one it polls, after pauses
        that double from 0.05 to 1 s.

        Args:
            timeout: At most how long to wait: seconds, or a `timedelta`. None waits for ever, 0 does not wait.

        Raises:
            JobFailed: The message has failed, has expired or was cancelled; the handler's error is its `error`.
            TimeoutError: It has not ended in time, or its listener keeps no results; the text says its state.
            IllegalStateException: There is no result yet, and a transaction would stay open meanwhile: a transacted
                handler's, the caller's, or the target's, if it is a session; or the connection is closed.
            JMSException: The server could not be asked.
        """
        deadline = None if timeout is None else monotonic() + seconds(timeout, "timeout")
        ending = None if self._uuid is None else await self._wait(self._uuid, deadline)
        if ending is None:
            await self.refresh()
            if not self.is_finished or (self._ending.kept_until is None and self.state is ResultState.DONE):
                raise TimeoutError(self._why_late(timeout))
        else:
            self._ending = ending
        if self.state is ResultState.DONE:
            return self.value
        raise JobFailed(self._why_failed(), error=self.error, state=self.state)

    async def _wait(self, message_uuid: str, deadline: float | None) -> Ending | None:
        """Wait for the result; return None at the deadline."""
        found = await self._endings.read(find_result, message_uuid)
        if found is not None or (deadline is not None and monotonic() >= deadline):
            return found
        transaction = self._endings.transaction
        if transaction is not None:
            raise IllegalStateException(
                f"A result is waited for inside of {transaction}: it would stay open until the message has ended, and "
                "what it has sent itself is sent with its end. Wait before it begins, or after its end."
            )
        pause = _FIRST_PAUSE
        async with self._notified(channel_of(message_uuid)) as notifications:
            while True:
                count = notifications.count
                found = await self._endings.read(find_result, message_uuid)
                remaining = pause if deadline is None else deadline - monotonic()
                if found is not None or remaining <= 0:
                    return found
                await notifications.wait(count, min(pause, remaining))
                pause = min(2 * pause, _LONGEST_PAUSE)

    @asynccontextmanager
    async def _notified(self, channel: int) -> AsyncIterator[Notifications]:
        """Have the results of a channel's messages notified for as long as a block runs."""
        notifications = self._endings.notifications()
        listening = await self._endings.listening_connection()

        def heard(_: MessageKey | GroupKey | None) -> None:
            notifications.notify()

        if listening is None:
            yield notifications
            return
        listening.begin_waiting(channel, heard)
        try:
            yield notifications
        finally:
            listening.end_waiting(channel, heard)

    def _why_late(self, timeout: float | timedelta | None) -> str:
        if self._uuid is None:
            return f"{self.id!r} is no JMSMessageID of jmsql's, so that no result can come."
        limit = "for ever" if timeout is None else f"within {seconds(timeout, 'timeout'):g} s"
        text = f"The message {self.id} has not ended {limit}: it is {self.state}."
        match self.state:
            case ResultState.DONE:
                return (
                    f"The message {self.id} is done, and its listener keeps no result: register it with keep_result=…"
                )
            case ResultState.UNKNOWN:
                return (
                    f"{text} Its transaction may not be committed, or its listener keeps no result: register it with "
                    "keep_result=…; or the role may not browse its queue."
                )
            case ResultState.RETRYING:
                return f"{text} Its last error: {_last_line(self.error)}"
            case _:
                return text

    def _why_failed(self) -> str:
        match self.state:
            case ResultState.FAILED:
                number = "1 delivery" if self.deliveries == 1 else f"{self.deliveries} deliveries"
                return f"The message {self.id} has failed after {number}: {_last_line(self.error)}"
            case ResultState.EXPIRED:
                return f"The message {self.id} has expired before a handler could end it."
            case _:
                return f"The message {self.id} was {self.state}."

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.state}>"


def _last_line(error: str | None) -> str:
    return (error or "").rstrip("\n").rpartition("\n")[2]


@set_module("jmsql.asyncio")
async def result(
    target: Session | JMSContext | Connection | Enlistable, message_id: str | UUID, *, schema: str = "jmsql"
) -> Result:
    """Return the result of a message, with its state of now.

    Where no result is kept (yet), all waiting messages are read for the state: no index has their identifiers. A role
    needs the right to browse the queue.

    Args:
        target: A session, context or connection of jmsql, which asks beside its transaction; or any transaction that
            [`jmsql.asyncio.enlist`][jmsql.asyncio.enlist] takes, which sees its own changes.
        message_id: JMSMessageID, as [`send`][jmsql.asyncio.send] returns it, with or without its "ID:". Of any other
            text the state is "unknown".
        schema: The PostgreSQL schema of jmsql's tables, for a transaction of the caller's.

    Raises:
        TypeError: The target is none of these, or the identifier no text.
        IllegalStateException: The target is closed.
        JMSException: The server could not be asked.
    """
    return await Result(_endings(target, schema), _text(message_id)).refresh()


@set_module("jmsql.asyncio")
async def status(
    target: Session | JMSContext | Connection | Enlistable, message_id: str | UUID, *, schema: str = "jmsql"
) -> ResultState:
    """Return the state of any message: "waiting", "running", "retrying", "done", "failed" and so on.

    A message that is done is known as such as long as its result or its [history](/history.md) is kept, and "unknown"
    afterwards.

    Args:
        target: As for [`result`][jmsql.asyncio.result].
        message_id: As for [`result`][jmsql.asyncio.result].
        schema: The PostgreSQL schema of jmsql's tables, for a transaction of the caller's.

    Raises:
        TypeError: The target is none of these, or the identifier no text.
        IllegalStateException: The target is closed.
        JMSException: The server could not be asked.
    """
    return (await result(target, message_id, schema=schema)).state


def _endings(target: Session | JMSContext | Connection | Enlistable, schema: str) -> Endings:
    if isinstance(target, Session | JMSContext | Connection):
        return target.endings()
    return endings_of_caller(target, schema)


def _text(message_id: object) -> str:
    if isinstance(message_id, UUID):
        return f"ID:{message_id}"
    if not isinstance(message_id, str):
        raise TypeError(f"Expected a JMSMessageID such as 'ID:…', got {message_id!r}.")
    return message_id
