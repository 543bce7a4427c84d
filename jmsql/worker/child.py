"""A process of a worker: loads an application, and runs its listeners."""

from __future__ import annotations

import gc
import logging
import os
import select
import signal
import socket
import sys
import threading
import time
from typing import NoReturn

from jmsql.client._sync.connection.connection import Connection
from jmsql.client.process_counters import ProcessCounters
from jmsql.exceptions import IllegalStateException, JMSException
from jmsql.store.subscriptions import ChangeRefusedException
from jmsql.worker.application import Application, Listener
from jmsql.worker.handler_counters import HandlerCounters
from jmsql.worker.handler_thread import HandlerThread, Handling
from jmsql.worker.loading import RefusalError, load_application
from jmsql.worker.logs import start_log
from jmsql.worker.reports import Listening, Progress, Refusal, send_report
from jmsql.worker.settings import Settings

__all__ = ["CUT_OFF", "Child", "main"]

logger = logging.getLogger("jmsql.worker")

CUT_OFF = 1
"""The exit code where handlers were still running at the deadline."""

_USAGE_ERROR = 2
_JMS_ERROR = 3


class Child:
    """Runs the listeners of an application until it is told to stop.

    Args:
        channel: Leads to the supervisor.
        stop_signal: Becomes readable with the signal to stop.
        settings: What to do.
    """

    def __init__(self, channel: socket.socket, stop_signal: socket.socket, settings: Settings) -> None:
        self._channel = channel
        self._stop_signal = stop_signal
        self._settings = settings
        self._timings = settings.timings
        self._threads: list[HandlerThread] = []
        self._named: set[Handling] = set()
        self._process_counters: ProcessCounters | None = None
        self._next_heartbeat = 0.0

    def run(self) -> int:
        """Work, and return the exit code."""
        if self._settings.metrics:
            self._process_counters = ProcessCounters()
        try:
            application = load_application(self._settings.application)
            connection = self._settings.factory(application.factory).create_connection()
        except RefusalError as error:
            return self._refuse(error, _USAGE_ERROR)
        except JMSException as error:
            return self._refuse(error, _JMS_ERROR)
        try:
            self._threads = self._open(connection, application)
        except JMSException as error:
            connection.close()
            return self._refuse(error, _JMS_ERROR)
        listeners = [listener.facts(self._settings.concurrency) for listener in application.listeners]
        send_report(self._channel, Listening(listeners))
        self._report()  # the supervisor is to know that it can work before it does
        gc.enable()
        for thread in self._threads:
            thread.start()
        connection.start()
        while self._is_wanted():
            self._look()
        is_whole = len(self._running()) == len(self._threads)
        return max(self._drain(connection), 0 if is_whole else CUT_OFF)

    def _refuse(self, error: Exception, exit_code: int) -> int:
        logger.debug("Refused.", exc_info=error)
        traceback = error.traceback if isinstance(error, RefusalError) else None
        send_report(self._channel, Refusal(str(error), exit_code, traceback))
        return exit_code

    def _open(self, connection: Connection, application: Application) -> list[HandlerThread]:
        return [
            self._thread(connection, listener, number)
            for listener in application.listeners
            for number in range(1, (listener.concurrency or self._settings.concurrency) + 1)
        ]

    def _thread(self, connection: Connection, listener: Listener, number: int) -> HandlerThread:
        try:
            return HandlerThread(connection, listener, number, self._timings, self._settings.changed_subscriptions)
        except ChangeRefusedException as error:
            raise IllegalStateException(f"{listener}: {error} {_way_out(error, listener)}") from error

    def _is_wanted(self) -> bool:
        """Wait a moment; return whether all threads run, and neither a signal nor the supervisor's end says to stop."""
        told, _, _ = select.select([self._channel, self._stop_signal], [], [], self._timings.check_interval)
        return not told and all(thread.is_alive() for thread in self._threads)

    def _look(self) -> None:
        """Report, and look after the threads."""
        now = time.monotonic()
        for thread in self._threads:
            handling = thread.handling
            if handling is not None and thread.listener.transacted and handling not in self._named:
                self._warn_if_long(thread, handling, now - handling.started)
        self._named.intersection_update([thread.handling for thread in self._threads if thread.handling is not None])
        if now >= self._next_heartbeat:
            self._next_heartbeat = now + self._timings.report_interval
            self._report()

    def _warn_if_long(self, thread: HandlerThread, handling: Handling, seconds: float) -> None:
        if seconds < self._settings.long_transaction:
            return
        self._named.add(handling)
        thread.counters.long_transactions += 1
        logger.warning(
            "%s has held a transaction open for %.0f s, for the message %s. That keeps its locks, and vacuum from its "
            "work; do what takes long elsewhere, or register the handler with transacted=False.",
            thread.listener,
            seconds,
            handling.message_id,
            extra={
                "listener": thread.listener.name,
                "destination": str(thread.listener.destination),
                "message_id": handling.message_id,
                "seconds": round(seconds, 6),
            },
        )

    def _report(self) -> None:
        handler_counters: dict[str, HandlerCounters] = {}
        for thread in self._threads:
            handler_counters.setdefault(thread.listener.name, HandlerCounters()).add(thread.counters)
        now = time.monotonic()
        running = [(thread.listener, handling) for thread in self._threads if (handling := thread.handling) is not None]
        longest = max((now - handling.started for listener, handling in running if listener.transacted), default=0.0)
        destination_counters = {} if self._process_counters is None else self._process_counters.counts()
        send_report(self._channel, Progress(len(running), longest, handler_counters, destination_counters))

    def _drain(self, connection: Connection) -> int:
        """Let the handlers that run finish, until the deadline; return the exit code."""
        deadline = time.monotonic() + self._settings.drain_timeout
        connection.stop()
        for thread in self._threads:
            thread.stop()
        while self._running() and time.monotonic() < deadline:
            self._running()[0].join(min(self._timings.check_interval, max(0.0, deadline - time.monotonic())))
            self._look()
        left = self._running()
        for thread in left:
            logger.warning(
                "%s has not finished within %g s; its transaction is rolled back, and the message is delivered again.",
                thread.listener,
                self._settings.drain_timeout,
                extra={"listener": thread.listener.name, "destination": str(thread.listener.destination)},
            )
        closing = threading.Thread(target=_close, args=[connection, left], daemon=True)
        closing.start()
        closing.join(self._timings.rollback_timeout)
        self._report()
        return CUT_OFF if left else 0

    def _running(self) -> list[HandlerThread]:
        return [thread for thread in self._threads if thread.is_alive()]


def _way_out(error: ChangeRefusedException, listener: Listener) -> str:
    """Return what a new release can do whose listener wants a durable subscription with another selector."""
    if error.is_active:
        return (
            "That may be a worker of another release: end it before this one starts (what is published in between is "
            "collected), or let this release have a subscription of another name."
        )
    keep = (
        "--changed-subscriptions keep has the new selector decide from now on, and delivers what waits, whatever it "
        "is; "
        if error.same_topic
        else ""
    )
    return (
        f"Nothing was changed. {keep}--changed-subscriptions drop deletes what waits; or give the subscription another "
        f"name, and end this one with `jmsql unsubscribe {listener.subscription}`."
    )


def _close(connection: Connection, running: list[HandlerThread]) -> None:
    for thread in running:
        thread.cancel()
    connection.close()


def main() -> NoReturn:
    """Run the process that the arguments describe, and end it with its threads."""
    name, descriptor, text = sys.argv[1:]
    settings = Settings.from_json(text)
    stop_signal, stop = socket.socketpair()
    signal.signal(signal.SIGTERM, lambda *_: stop.send(b"\0"))
    start_log(settings.log_format, name, settings.log_level)
    channel = socket.socket(fileno=int(descriptor))
    channel.set_inheritable(False)
    exit_code = Child(channel, stop_signal, settings).run()
    if exit_code == CUT_OFF:  # Python would wait at its exit for what the handler has started
        logging.shutdown()
        sys.stdout.flush()
        os._exit(exit_code)
    sys.exit(exit_code)
