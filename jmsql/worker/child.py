"""A process of a worker: loads an application, and runs its listeners."""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import wait
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from jmsql.client.process_counters import ProcessCounters
from jmsql.concurrency.readiness import wait_until_ready
from jmsql.exceptions import JMSException
from jmsql.logs import contained_logger
from jmsql.store.connections.database_url import place_of
from jmsql.values.clock import monotonic
from jmsql.worker.handlers.handler_groups import (
    HandlerGroup,
    HandlersInEventLoop,
    HandlersInThreads,
    HandlerWatch,
    asynchronous,
    synchronous,
)
from jmsql.worker.handlers.listener import Listener
from jmsql.worker.limits import MEBIBYTE, MemoryLimit, MessageQuota, in_mebibytes, resident_memory
from jmsql.worker.loading import RefusalError, choose_listeners, load_application
from jmsql.worker.logs import complete_log, start_log
from jmsql.worker.reports import Limit, Listening, Progress, Refusal, ReportWriter, Retirement
from jmsql.worker.schedules import DeclaredSchedules
from jmsql.worker.settings import Settings

if TYPE_CHECKING:
    from jmsql.client._async.connection.factory import ConnectionFactory as AsyncConnectionFactory
    from jmsql.client._sync.connection.factory import ConnectionFactory

logger = contained_logger("jmsql.worker")

CUT_OFF = 1
"""The exit code where handlers were still running at the deadline."""

_USAGE_ERROR = 2
_JMS_ERROR = 3


# The main thread of a process supervises and waits; it neither handles messages nor talks to the server after the
# start. So no handler keeps it from reporting, or from ending in time. It leaves its loop for one of four reasons:
# SIGTERM, the supervisor's end, a limit that was reached, or a task that takes no more messages.
#
# How it ends: tasks take no more messages, running handlers have the drain timeout, and those that run on are
# interrupted and rolled back within `rollback_timeout`. A process that retires waits for its handlers without a limit
# before that. If handlers were cut off, the process ends by `os._exit`: Python would wait for what they have started,
# executors and threads that are no daemons. The supervisor kills a process at the drain timeout plus `exit_timeout`, if
# it has told the process to end. A process that retires, or has lost its supervisor, waits at its exit for as long.
#
# Objects that were loaded at the start are frozen for the garbage collector. To collect them at the exit would take
# half as long as loading them.


class Child:
    """Runs the listeners of an application until it is told to stop."""

    def __init__(self, name: str, channel: socket.socket, stop_signal: socket.socket, settings: Settings) -> None:
        self._name = name
        self._channel = channel
        self._stop_signal = stop_signal
        self._settings = settings
        self._timings = settings.timings
        # By then the supervisor kills the process, if it can.
        patience = self._timings.exit_timeout - self._timings.rollback_timeout
        self._reports = ReportWriter(channel, stop_signal, patience)
        self._watch = HandlerWatch(list, settings.warn_transaction_after)
        self._process_counters: ProcessCounters | None = None
        self._next_heartbeat = 0.0
        # A socket and not a flag: the thread that has received the last message of the quota wakes the main thread out
        # of its `select`.
        self._limit_signal, self._limit_reached = socket.socketpair()
        self._quota: MessageQuota | None = None
        if settings.max_messages is not None:
            self._quota = MessageQuota(settings.max_messages, partial(self._limit_reached.send, b"\0"))

    def run(self) -> int:
        """Work, and return the exit code."""
        if self._settings.metrics:
            self._process_counters = ProcessCounters()
        groups: list[HandlerGroup] = []
        try:
            application = load_application(self._settings.application)
            complete_log(self._settings.log_format, self._name, self._settings.log_level)
            factory = self._settings.factory(application.factory)
            chosen = choose_listeners(application.listeners, self._settings.only, self._settings.without)
            declared = DeclaredSchedules(factory, application.schedules)
            declared.declare(changes=self._settings.declares)
            groups.extend(self._open(chosen, factory))  # if it fails, it has those that it has opened
            memory = self._limit_memory()
        except (RefusalError, JMSException) as error:
            for group in groups:
                group.close()
            return self._refuse(error, _USAGE_ERROR if isinstance(error, RefusalError) else _JMS_ERROR)
        self._watch = HandlerWatch(
            lambda: [task for group in groups for task in list(group.members)], self._settings.warn_transaction_after
        )
        listeners = [listener.facts(self._settings.concurrency) for listener in chosen]
        self._reports.send(Listening(listeners, place_of(factory.url)))
        self._report()  # so that a handler's crash is no failed start
        gc.freeze()  # loaded modules stay: collecting garbage among them at exit takes half as long as loading them
        gc.enable()
        for group in groups:
            group.start()
        retirement: Retirement | None = None
        while not self._is_told_to_stop() and self._watch.is_whole and retirement is None:
            self._look()
            retirement = self._reached_limit(memory)
        declared.end()
        is_whole = self._watch.is_whole
        if retirement is not None:
            self._retire(groups, retirement)
        left = self._end(groups, self._settings.drain_timeout)
        self._report()
        return 0 if is_whole and not left else CUT_OFF

    def _limit_memory(self) -> MemoryLimit | None:
        """Return the limit of the process's memory, if there is one.

        Raises:
            RefusalError: The process has begun with more.
        """
        most = self._settings.max_memory
        if most is None:
            return None
        limit = MemoryLimit(most * MEBIBYTE)
        if limit.is_too_low:
            raise RefusalError(
                f"The process takes {in_mebibytes(limit.at_start)} of memory before its first message, and "
                f"--max-memory allows {most} MiB. Raise it."
            )
        return limit

    def _reached_limit(self, memory: MemoryLimit | None) -> Retirement | None:
        """Return why the process is to be replaced; None: it is not."""
        if self._quota is not None and self._quota.is_used_up:
            return Retirement(
                Limit.messages,
                f"has received {self._quota.most} messages, and --max-messages is {self._settings.max_messages}",
            )
        if memory is not None and memory.is_exceeded():
            return Retirement(
                Limit.memory,
                f"has {in_mebibytes(resident_memory())} of memory, and --max-memory is {self._settings.max_memory} MiB",
                f"It began with {in_mebibytes(memory.at_start)}. If that happens again and again, raise --max-memory.",
            )
        return None

    def _retire(self, groups: list[HandlerGroup], retirement: Retirement) -> None:
        """Take no more messages, and wait until the handlers have returned, or the process is told to stop."""
        self._report()
        self._reports.send(retirement)
        stopping = [group.stop_receiving() for group in groups]
        while not (self._watch.have_ended or self._is_told_to_stop()):
            self._look()
            if any(each.done() and each.exception() is not None for each in stopping):
                return  # `end` tries again

    def _refuse(self, error: Exception, exit_code: int) -> int:
        logger.debug("Refused.", exc_info=error)
        traceback = error.traceback if isinstance(error, RefusalError) else None
        self._reports.send(Refusal(str(error), exit_code, traceback))
        return exit_code

    def _open(
        self, listeners: Sequence[Listener], factory: ConnectionFactory | AsyncConnectionFactory
    ) -> Iterator[HandlerGroup]:
        blocking = [listener for listener in listeners if not listener.is_async]
        if blocking:
            yield HandlersInThreads.open(synchronous(factory), blocking, self._settings, self._quota)
        awaited = [listener for listener in listeners if listener.is_async]
        if awaited:
            yield HandlersInEventLoop.open(asynchronous(factory), awaited, self._settings, self._quota)

    def _is_told_to_stop(self) -> bool:
        """Wait a moment; return whether a signal or the supervisor says to stop."""
        signals = [self._channel, self._stop_signal]
        told = wait_until_ready([*signals, self._limit_signal], self._timings.check_interval)
        if self._limit_signal in told:
            self._limit_signal.recv(1)
        return any(signal in told for signal in signals)

    def _look(self) -> None:
        """Report, and supervise the handlers."""
        self._watch.supervise()
        now = monotonic()
        if now >= self._next_heartbeat:
            self._next_heartbeat = now + self._timings.report_interval
            self._reports.send_at_once(self._progress())

    def _report(self) -> None:
        self._reports.send(self._progress())

    def _progress(self) -> Progress:
        destination_counters = {} if self._process_counters is None else self._process_counters.counts()
        return self._watch.progress(destination_counters)

    def _end(self, groups: list[HandlerGroup], drain_timeout: float) -> bool:
        """Let the handlers that run finish, until the deadline; return whether any have not."""
        deadline = monotonic() + drain_timeout + self._timings.rollback_timeout
        ending = {group.end(drain_timeout) for group in groups}
        remaining = ending
        while remaining and monotonic() < deadline:
            pause = min(self._timings.check_interval, max(0.0, deadline - monotonic()))
            _, remaining = wait(remaining, pause)
            self._look()
        if remaining:
            self._watch.name_unfinished()
        return bool(remaining) or any(ended.result() for ended in ending)


def _leave_to_parent(channel: socket.socket) -> None:
    """In a forked child: report nothing in the parent's name, and take a SIGTERM for the child's own."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    channel.close()


def main() -> NoReturn:
    """Run the process that the arguments describe, and end it with its threads."""
    name, descriptor, text = sys.argv[1:]
    settings = Settings.from_json(text)
    stop_signal, stop = socket.socketpair()
    signal.signal(signal.SIGTERM, lambda *_: stop.send(b"\0"))
    start_log(settings.log_format, name, settings.log_level)
    channel = socket.socket(fileno=int(descriptor))
    channel.set_inheritable(False)
    os.register_at_fork(after_in_child=partial(_leave_to_parent, channel))
    exit_code = Child(name, channel, stop_signal, settings).run()
    # Python's end takes the handler away, and a process whose work is done would be killed, as if that was cut off.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if exit_code == CUT_OFF:  # at its exit, Python would wait for threads that the handler has started
        _exit_at_once(exit_code)
    limit = threading.Timer(settings.drain_timeout + settings.timings.exit_timeout, _leave_threads, [name, exit_code])
    limit.daemon = True
    limit.start()
    sys.exit(exit_code)


def _leave_threads(name: str, exit_code: int) -> None:
    """End the process, which has waited long enough at its exit for threads that handlers have started."""
    others = [each.name for each in threading.enumerate() if not each.daemon and each is not threading.main_thread()]
    left = f"its threads {', '.join(others)}" if others else "its functions at exit"
    logger.warning("%s has handled its messages, and ends without %s.", name, left)
    _exit_at_once(exit_code)


def _exit_at_once(exit_code: int) -> NoReturn:
    logging.shutdown()
    sys.stdout.flush()
    os._exit(exit_code)
