"""The worker's first process, which starts, supervises and ends the others. It handles no messages."""

from __future__ import annotations

import copy
import logging
import os
import selectors
import signal
import socket
import threading
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from jmsql.concurrency.readiness import wait_until_ready
from jmsql.logs import contained_logger
from jmsql.values.clock import monotonic
from jmsql.worker.child_process import ChildProcess, ProcessSlot
from jmsql.worker.competition import warn_of_competition
from jmsql.worker.metrics import Totals, WorkerMetrics
from jmsql.worker.reports import Limit, outcomes
from jmsql.worker.settings import Settings

# The supervisor handles no messages, and imports nothing of the application: an error in its code, at the import or
# later, cannot stop the process that starts others again (decision 16). Processes are started with `python -m`, and not
# forked, so that a hang-up brings new code, and no connection, lock or thread is inherited.
#
# One thread does all of the work. It waits for reports and signals in one selector (`_look`), and for a process only
# once that has ended or closed its channel. The threads of the health endpoint read, and take the list of processes
# under `_lock`.
#
# The states of a slot, with the transitions between them:
#
# - It has a process: `current`. A hang-up starts its successor, which takes the slot once it is ready; until then the
#   old one receives.
# - It has none: the process has died. Another one is started after a pause, which doubles with each early death, up to
#   `maximum_restart_delay`.
# - Its process retires at a limit of messages or memory: it receives no more and ends by itself. The slot is filled at
#   once, or after a pause if the process has handled nothing.
#
# A broken release stops with its first process: slots are renewed one after the other, and if a successor does not
# start, the rest keep their processes.


_LEFT_OUT = frozenset({"__pycache__", "node_modules", "site-packages"})


class SourceFiles:
    """The Python files below a directory, hidden ones and installed packages aside."""

    def __init__(self, directory: Path, interval: float) -> None:
        self._interval = interval
        self._directory = directory
        self._times = self._read()
        self._next_look = 0.0

    def have_changed(self) -> bool:
        """Return whether any was changed, made or deleted since the last call."""
        now = monotonic()
        if now < self._next_look:
            return False
        former, self._times = self._times, self._read()
        self._next_look = now + self._interval
        return self._times != former

    def _read(self) -> dict[str, int]:
        times = {}
        for directory, directories, names in os.walk(self._directory):
            directories[:] = [name for name in directories if not name.startswith(".") and name not in _LEFT_OUT]
            for name in names:
                if name.endswith(".py"):
                    path = Path(directory, name)
                    try:
                        times[str(path)] = path.stat().st_mtime_ns
                    except FileNotFoundError:
                        continue  # deleted just now
        return times


logger = contained_logger("jmsql.worker")

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Supervisor:
    """Keeps the processes of a worker running."""

    def __init__(
        self, settings: Settings, processes: int, url: str | None = None, source_files: SourceFiles | None = None
    ) -> None:
        self._settings = settings
        self._process_count = processes
        self._url = url
        self._source_files = source_files
        self._selector = selectors.DefaultSelector()
        self._started = 0
        self._last_turn = monotonic()
        # Written by the supervisor's thread under `_lock`, and read by the health endpoint's threads under it, together
        # with `_ended_totals`: a process is in one of the two.
        self._children: list[ChildProcess] = []
        self._slots: list[ProcessSlot] = []
        # Slots that wait for a new process after a hang-up, in the order in which they get one.
        self._to_renew: list[ProcessSlot] = []
        self._has_begun = False
        # None while the worker works. After a signal, or a first process that cannot begin, it is the exit code, and no
        # other process is started.
        self._exit_code: int | None = None
        self._was_signalled = False
        self._was_cut_off = False
        self._ended_totals = Totals()
        self._replaced: Counter[Limit] = Counter()
        self._listeners: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    # Running

    def run(self) -> int:
        """Work until a signal says to stop, and return the exit code."""
        with self._signals():
            try:
                self._slots = [ProcessSlot(self._start, self._settings.timings) for _ in range(self._process_count)]
                self._start_first()
                while self._children or self._exit_code is None:
                    self._look()
            finally:
                for child in self._children:
                    child.kill()
                    child.wait()
                self._selector.close()
        assert self._exit_code is not None
        return self._exit_code or int(self._was_cut_off)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Read signals as they come, instead of being interrupted by them."""
        received, wakeup = socket.socketpair()
        with received, wakeup:
            wakeup.settimeout(0)
            handlers = {number: signal.signal(number, lambda *_: None) for number in _SIGNALS}
            former = signal.set_wakeup_fd(wakeup.fileno())
            self._selector.register(received, selectors.EVENT_READ)
            try:
                yield
            finally:
                signal.set_wakeup_fd(former)
                for number, handler in handlers.items():
                    signal.signal(number, handler)

    def _start(self, *, is_replacement: bool) -> ChildProcess:
        self._started += 1
        # A replacement must not restore old limits and schedules: a newer release may have declared others since.
        settings = replace(self._settings, declares=not is_replacement)
        child = ChildProcess(f"worker {self._started}", settings, self._url)
        with self._lock:
            self._children.append(child)
        self._selector.register(child.channel, selectors.EVENT_READ, child)
        return child

    def _start_first(self) -> None:
        """Start the first processes; if that fails, end those that were started."""
        for slot in self._slots:
            try:
                slot.start_first()
            except OSError:
                logger.exception("No process can be started.")
                self._drain(1)
                return

    def _look(self) -> None:
        events = self._selector.select(self._settings.timings.supervision_interval)
        self._excuse_silence()
        for key, _ in events:
            if key.data is None:
                assert isinstance(key.fileobj, socket.socket)
                for number in key.fileobj.recv(64):
                    self._signalled(number)
            elif not key.data.read_reports():
                self._selector.unregister(key.fileobj)
                self._ended(key.data)
        for child in [child for child in self._children if child.has_ended]:
            self._selector.unregister(child.channel)
            while wait_until_ready([child.channel], 0) and child.read_reports():
                pass  # the next of its last reports
            self._ended(child)
        # As process 1 of a container, the supervisor inherits processes that handlers have left behind. Nothing else
        # waits for them.
        _reap_orphans({child.process_id for child in self._children})
        for child in self._children:
            child.kill_if_overdue()
            # A process that is stuck in C code with the GIL held cannot run its watcher, so its time-outs would not
            # hold. Without time-outs, a long silent handler is legitimate.
            if child.has_timeouts and child.silence > self._settings.timings.silence_timeout:
                logger.error("%s is silent: it is killed, since its handlers have time-outs.", child.name)
                child.kill()
        if self._exit_code is None:
            self._keep_up()

    def _excuse_silence(self) -> None:
        """Count no time as silence in which the supervisor did not run.

        A frozen container, or a debugger, stops the supervisor together with its processes. When they go on, it sees
        the time that has passed before any of them can report.
        """
        interval, former, self._last_turn = self._settings.timings.supervision_interval, self._last_turn, monotonic()
        late = self._last_turn - former - interval
        if late > interval:
            for child in self._children:
                child.excuse(late)

    def _keep_up(self) -> None:
        if not self._has_begun and all(slot.is_ready for slot in self._slots):
            self._has_begun = True
            number = self._process_count
            self._tell_listeners(self._slots[0])
            database = "" if self._slots[0].current is None else self._slots[0].current.database
            logger.info(
                "Handling messages in %s with %d process%s.",
                *(database, number, "" if number == 1 else "es"),
                extra={"database": database},
            )
        for slot in self._slots:
            slot.fill()
            # A successor is ready before the former process drains: messages are handled throughout.
            former = slot.hand_over()
            if former is not None:
                self._tell_listeners(slot)
                former.drain()
            self._retire(slot)
        if self._source_files is not None and self._source_files.have_changed():
            logger.info("Source files have changed: new processes take the places of the old.")
            self._renew()
        # One slot at a time, so that a broken release stops with its first process, while the others go on.
        if self._has_begun and self._to_renew and not any(slot.successor for slot in self._slots):
            try:
                self._to_renew.pop(0).succeed()
            except OSError:
                logger.exception("The old processes go on: no process can be started.")
                self._to_renew.clear()

    def _retire(self, slot: ProcessSlot) -> None:
        """Have another process take a slot whose own has reached a limit."""
        child = slot.current
        if child is None or (retirement := child.retirement) is None:
            return
        slot.retire(child)
        self._replaced[retirement.limit] += 1
        is_young = retirement.advice and monotonic() - child.started < self._settings.timings.stable_duration
        logger.log(
            logging.WARNING if is_young else logging.INFO,
            "%s, process %d, %s. Another process takes its place.%s",
            child.name,
            child.process_id,
            retirement.reason,
            f" {retirement.advice}" if is_young else "",
            extra={"limit": retirement.limit, "running": child.progress.running},
        )

    def _tell_listeners(self, slot: ProcessSlot) -> None:
        """Log the listeners, once."""
        if slot.current is None or slot.current.listeners == self._listeners:
            return
        self._listeners = slot.current.listeners
        for listener in self._listeners:
            logger.info("%s", _description(listener), extra=listener)
        warn_of_competition(self._listeners)

    # Events

    def _signalled(self, number: int) -> None:
        if number == signal.SIGHUP:
            if self._exit_code is None:
                logger.info("Hang-up: new processes take the places of the old.")
                self._renew()
        elif number in _SIGNALS and not self._was_signalled:
            self._was_signalled = True
            logger.info(
                "%s: no more messages; running handlers have %g s.", _name(number), self._settings.drain_timeout
            )
            if self._exit_code is None:  # else it drains already, since a first process could not begin
                self._drain(0)
        elif number in _SIGNALS:
            logger.warning("%s again: ending at once.", _name(number))
            self._exit_code = 128 + number
            for child in self._children:
                child.kill()

    def _renew(self) -> None:
        self._to_renew = list(self._slots)

    def _drain(self, exit_code: int) -> None:
        self._exit_code = exit_code
        for child in self._children:
            child.drain()

    def _ended(self, child: ChildProcess) -> None:
        exit_code = child.wait()
        with self._lock:
            self._children.remove(child)
            self._ended_totals.add(child.progress)
        if child.is_draining:
            self._was_cut_off |= child.is_ready and exit_code != 0
            logger.info("%s has ended.", child.name)
            return
        if child.retirement is not None and self._exit_code is None:
            for slot in self._slots:
                if slot.current is child:
                    self._retire(slot)
        if child.retirement is not None and exit_code == 0:
            logger.info("%s has ended.", child.name)
            return
        reason = _reason(child, exit_code)
        traceback = None if child.refusal is None else child.refusal.traceback
        failure = {} if traceback is None else {"exception": traceback}
        if not (self._has_begun or child.is_ready):
            logger.error("%s", reason, extra=failure)
            self._drain(1 if child.refusal is None else child.refusal.exit_code)
            return
        is_successor = any(slot.successor is child for slot in self._slots)
        logger.error("%s", f"The old processes go on: {reason}" if is_successor else reason, extra=failure)
        # The new code does not start. The remaining slots keep the old processes.
        if is_successor:
            self._to_renew.clear()
        for slot in self._slots:
            slot.lost(child)

    # For the health endpoint, from its threads

    def document(self) -> dict[str, Any]:
        """Return the state of the worker."""
        children, totals = self._snapshot()
        return {
            "healthy": all(child.silence < self._settings.timings.silence_timeout for child in children),
            "ready": self._exit_code is None and self._has_begun and all(slot.can_receive for slot in self._slots),
            "draining": self._exit_code is not None,
            "restarts": sum(slot.restarts for slot in self._slots),
            "replaced": {limit: self._replaced[limit] for limit in Limit},
            **outcomes(totals.handler_counters),
            "children": [child.document() for child in children],
        }

    def metrics(self) -> WorkerMetrics:
        """Return the metrics for Prometheus."""
        children, totals = self._snapshot()
        states = Counter(child.state for child in children)
        return WorkerMetrics(
            totals,
            {state: states[state] for state in ("starting", "ready", "waiting", "draining")},
            sum(slot.restarts for slot in self._slots),
            {limit: self._replaced[limit] for limit in Limit},
            sum(child.progress.running for child in children),
            max((child.progress.longest_transaction for child in children), default=0.0),
        )

    def _snapshot(self) -> tuple[list[ChildProcess], Totals]:
        """Return the current processes, and the totals of all processes so far."""
        with self._lock:
            # The supervisor's thread moves an ended child's counters under the same lock, so a child is counted in
            # exactly one of the two.
            children = list(self._children)
            totals = copy.deepcopy(self._ended_totals)
        for child in children:
            totals.add(child.progress)
        return children, totals


def _reap_orphans(own: Collection[int]) -> None:
    """Reap the orphans of handlers. The system gives them to the first process of a container.

    Args:
        own: The processes that have objects of their own to wait for them.
    """
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None or ended.si_pid in own:
            return
        os.waitpid(ended.si_pid, 0)


def _name(number: int) -> str:
    return signal.Signals(number).name


def _description(listener: dict[str, Any]) -> str:
    """Return a listener's description for the log."""
    subscription = ""
    if listener["subscription"] is not None:
        kind = "durable" if listener["durable"] else "shared"
        subscription = f", the {kind} subscription {listener['subscription']!r}"
    selector = "" if listener["selector"] is None else f", selector {listener['selector']}"
    return (
        f"{listener['listener']} handles {listener['destination']}{subscription}{selector}: "
        f"{listener['concurrency']} at a time in each process, "
        f"{'transacted' if listener['transacted'] else 'not transacted'}."
    )


def _reason(child: ChildProcess, exit_code: int) -> str:
    if child.refusal is not None:
        return child.refusal.reason
    how = f"was killed by {_name(-exit_code)}" if exit_code < 0 else f"ended with exit code {exit_code}"
    return f"{child.name}, process {child.process_id}, {how}."
