"""jmsql's worker beside its peers'. Each handler inserts one row into the application's table."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

from benchmarks.database import BenchmarkDatabase
from benchmarks.measurement import BenchmarkResult, Samples, at_least, at_most, percentiles
from benchmarks.peers.peer import Unavailable, import_peer
from benchmarks.setting import Setting
from benchmarks.workers import effects, figures
from benchmarks.workers.brokers import Broker
from benchmarks.workers.figures import JMSQL, OWN
from benchmarks.workers.ledger import Batch, Ledger, open_ledger
from benchmarks.workers.running import RunningWorker, Sender, WorkerFailedError
from benchmarks.workers.systems import BOUNDS, SYSTEMS, System

_QUICK_ARRANGEMENTS = (figures.USUAL,)
_FIRST = 100
"""So many messages are handled before the measurement: processes start and connections are opened meanwhile."""
_SETTLING_SECONDS = 0.5
_PATIENCE = 120.0
_QUICK_RECOVERY = 20.0
_SECONDS_FOR_RATES = 1320.0
"""No round of rates is begun that would end later. With latencies and kills, all takes half an hour."""
_FEWER = 3
"""Handlers that run one at a time handle so many times fewer messages, so that a turn is not longer."""
_PAUSE = 0.05
_BLOCKS = 3
_MICROSECONDS = 1e6


class _Figures(NamedTuple):
    """What a turn has shown.

    Args:
        rate: Messages a second, from the first row to the last.
        client: Microseconds of processor time that the worker has taken for a message.
        server: The same of PostgreSQL and of the broker.
    """

    rate: float
    client: float
    server: float


@dataclass(frozen=True, slots=True)
class _Contestant:
    """A system that is ready to be measured.

    Args:
        system: What it is.
        database: The application's database.
        ledger: The application's table.
        broker: Its broker; None: it has none.
        sender: Sends to it.
    """

    system: System
    database: BenchmarkDatabase
    ledger: Ledger
    broker: Broker | None
    sender: Sender

    def worker(self, concurrency: int, processes: int) -> RunningWorker:
        """Return its worker, which is still to be started."""
        environment = _environment(self.database, self.broker, concurrency)
        return RunningWorker(self.system.commands(concurrency, processes), environment)

    def server_seconds(self) -> float:
        """Return the processor time that PostgreSQL and the broker have taken."""
        return self.database.server_seconds() + (0.0 if self.broker is None else self.broker.processor_seconds)

    def warm_up(self, worker: RunningWorker) -> None:
        """Wait until a worker that was started handles messages, and has nothing to do any more."""
        batch = self.ledger.batch(_FIRST)
        self.sender.send(*batch)
        self.wait(worker, batch, _FIRST)
        time.sleep(_SETTLING_SECONDS)

    def send_while_paused(self, worker: RunningWorker, count: int) -> Batch:
        """Send messages that the worker does not get to see before all of them are there."""
        batch = self.ledger.batch(count)
        with worker.paused():
            self.sender.send(*batch)
        return batch

    def wait(self, worker: RunningWorker, batch: Batch, count: int) -> None:
        """Wait until so many messages were handled.

        Raises:
            WorkerFailedError: They are not, or the worker has ended.
        """
        if not self.ledger.wait_for(batch, count, _PATIENCE, worker.require_running):
            handled = self.ledger.handled(batch)
            raise WorkerFailedError(f"It has handled {handled} of {count} messages:\n{worker.log}")


def worker_peers(setting: Setting) -> list[BenchmarkResult]:
    """A worker whose handler inserts a row, beside Procrastinate's, PgQueuer's, Celery's and Dramatiq's."""
    with ExitStack() as stack:
        contestants = _open_all(setting, stack)
        rates = _Rates(setting, contestants)
        others: list[BenchmarkResult] = []
        try:
            rates.measure()
            # What a worker that was killed leaves behind may come hours later, and is no burden to the others.
            for measure in (_latencies, _kills):
                others += measure(setting, contestants)
                setting.keep(rates.results() + others)
        except KeyboardInterrupt:
            setting.skip("what was left to measure", "the run was interrupted")
        return rates.results() + others


def _open_all(setting: Setting, stack: ExitStack) -> list[_Contestant]:
    """Start the brokers that there are, and make everything ready."""
    ledger = stack.enter_context(open_ledger(setting.database))
    brokers: dict[Any, Broker] = {}
    found = []
    for system in SYSTEMS:
        setting.tell(f"starting {system.name}")
        try:
            for package in system.packages:
                import_peer(package)
            broker = None
            if system.open_broker is not None:
                broker = brokers.get(system.open_broker) or stack.enter_context(system.open_broker())
                brokers[system.open_broker] = broker
        except Unavailable as unavailable:
            setting.skip(system.name, str(unavailable))
            continue
        environment = _environment(setting.database, broker, 1)
        if system.installation is not None:
            subprocess.run(system.installation, env=environment, check=True, capture_output=True)
        sender = stack.enter_context(Sender(system.application, environment))
        found.append(_Contestant(system, setting.database, ledger, broker, sender))
    return found


def _environment(database: BenchmarkDatabase, broker: Broker | None, concurrency: int) -> Mapping[str, str]:
    return {
        "JMSQL_URL": database.url,
        "PGQUEUER_DSN": database.url,
        "PGDSN": database.url,
        effects.DATABASE: database.url,
        effects.BROKER: "" if broker is None else broker.url,
        effects.CONCURRENCY: str(concurrency),
    }


def _skip(setting: Setting, name: str, what: str, error: WorkerFailedError) -> None:
    """Go on without a peer that has failed; jmsql's own failure ends the run."""
    if name in OWN:
        raise error
    setting.skip(f"{name}{what}", str(error).partition("\n")[0])


def _turns(contestants: Sequence[_Contestant], number: int) -> list[_Contestant]:
    """Return all of them, another one first each time."""
    place = number % len(contestants)
    return [*contestants[place:], *contestants[:place]]


# How fast a worker is


class _Rates:
    """Rounds in which each system has a turn in each arrangement.

    Args:
        setting: Where it runs.
        contestants: What is measured.
    """

    def __init__(self, setting: Setting, contestants: Sequence[_Contestant]) -> None:
        self._setting = setting
        self._contestants = contestants
        arrangements = _QUICK_ARRANGEMENTS if setting.effort.is_quick else figures.ARRANGEMENTS
        self._found: dict[tuple[int, int], dict[str, list[_Figures]]] = {each: {} for each in arrangements}
        for turns in self._found.values():
            turns.update({contestant.system.name: [] for contestant in contestants})

    def measure(self) -> None:
        """Measure all rounds for which there is time, and keep the results after each."""
        rounds = self._setting.effort.jobs
        began = time.monotonic()
        for number in range(rounds):
            elapsed = time.monotonic() - began
            if number and elapsed * (number + 1) / number > _SECONDS_FOR_RATES:
                self._setting.skip(f"{rounds - number} of {rounds} rounds", "they would take too long")
                break
            self._measure_round(number)
            self._setting.keep(self.results())

    def _measure_round(self, number: int) -> None:
        for (concurrency, processes), found in self._found.items():
            count = self._setting.effort.handled // (_FEWER if concurrency == 1 else 1)
            arrangement = figures.arrangement(concurrency, processes)
            for contestant in _turns(self._contestants, number):
                name = contestant.system.name
                if name not in found:
                    continue
                self._setting.tell(f"round {number + 1}{arrangement}: {name}")
                try:
                    found[name].append(_turn(contestant, concurrency, processes, count * contestant.system.pace))
                except WorkerFailedError as error:
                    _skip(self._setting, name, arrangement, error)
                    del found[name]

    def results(self) -> list[BenchmarkResult]:
        """Return what was found in the rounds in which all had their turns."""
        results = []
        for arrangement, found in self._found.items():
            rounds = min(map(len, found.values()))
            for place, (benchmark, unit) in enumerate(
                ((figures.RATE, "messages/s"), (figures.CLIENT, "µs a message"), (figures.SERVER, "µs a message"))
            ):
                samples = {name: [each[place] for each in turns[:rounds]] for name, turns in found.items()}
                if rounds:
                    name = benchmark + figures.arrangement(*arrangement)
                    results += _beside_peers(name, samples, unit, has_targets=benchmark == figures.RATE)
        return results


def _turn(contestant: _Contestant, concurrency: int, processes: int, count: int) -> _Figures:
    with contestant.worker(concurrency, processes) as worker:
        contestant.warm_up(worker)
        batch = contestant.send_while_paused(worker, count)
        client, server = worker.processor_seconds, contestant.server_seconds()
        contestant.wait(worker, batch, count)
        time.sleep(_SETTLING_SECONDS)  # what is acknowledged later
        client, server = worker.processor_seconds - client, contestant.server_seconds() - server
    rate = (count - 1) / contestant.ledger.seconds(batch)
    return _Figures(rate, _MICROSECONDS * client / count, _MICROSECONDS * server / count)


def _beside_peers(benchmark: str, samples: Samples, unit: str, *, has_targets: bool) -> list[BenchmarkResult]:
    return [
        BenchmarkResult(
            benchmark,
            subject,
            reference,
            unit,
            samples[subject],
            samples[reference],
            at_least(bound) if has_targets else None,
        )
        for subject, reference, bound in figures.pairs([*samples], BOUNDS)
    ]


# How soon it begins


def _latencies(setting: Setting, contestants: Sequence[_Contestant]) -> list[BenchmarkResult]:
    """Let all wait, and send to one after the other."""
    ledger = contestants[0].ledger
    rounds = setting.effort.latencies // 4
    with ExitStack() as stack:
        waiting = []
        for contestant in contestants:
            setting.tell(f"starting {contestant.system.name}")
            try:
                contestant.warm_up(stack.enter_context(contestant.worker(1, 1)))
            except WorkerFailedError as error:
                _skip(setting, contestant.system.name, ", idle", error)
            else:
                waiting.append(contestant)
        time.sleep(_SETTLING_SECONDS)
        batches = {contestant.system.name: ledger.batch(rounds) for contestant in waiting}
        started: dict[str, list[float]] = {name: [] for name in batches}
        for number in range(rounds):
            setting.tell(f"{number} messages of {rounds} to each")
            for contestant in _turns(waiting, number):
                time.sleep(_PAUSE * random.uniform(0.5, 1.5))
                name = contestant.system.name
                started[name].append(contestant.sender.send(batches[name].first + number, 1))
        for name, batch in list(batches.items()):
            if not ledger.wait_for(batch, rounds, _PATIENCE):
                _skip(setting, name, ", idle", WorkerFailedError("it has not handled all messages"))
                del batches[name]
    times: dict[str, list[float]] = {}
    for name, batch in batches.items():
        began = ledger.beginnings(batch)
        times[name] = [1000 * (began[batch.first + number] - started[name][number]) for number in range(rounds)]
    return [
        BenchmarkResult(
            f"{figures.LATENCY} p{percent}",
            JMSQL,
            name,
            "ms",
            percentiles(times[JMSQL], percent, _BLOCKS),
            percentiles(times[name], percent, _BLOCKS),
            at_most(1.0) if percent == 50 and name not in OWN else None,
        )
        for percent in (50, 95)
        for name in times
        if name != JMSQL
    ]


# What becomes of messages when it is killed


def _kills(setting: Setting, contestants: Sequence[_Contestant]) -> list[BenchmarkResult]:
    """Kill each once: to wait for what comes again takes longer than all else."""
    sent = setting.effort.handled
    missing: dict[str, float] = {}
    doubled: dict[str, float] = {}
    for contestant in contestants:
        system = contestant.system
        setting.tell(f"killing {system.name}")
        recovery = min(system.recovery, _QUICK_RECOVERY) if setting.effort.is_quick else system.recovery
        try:
            batch = _kill(contestant, sent, recovery)
        except WorkerFailedError as error:
            _skip(setting, system.name, ", killed", error)
            continue
        missing[system.name] = sent - contestant.ledger.handled(batch)
        doubled[system.name] = contestant.ledger.doubled(batch)
    return [
        BenchmarkResult(benchmark, name, figures.SENT, "messages", [found[name]], [sent], target)
        for benchmark, found in ((figures.MISSING, missing), (figures.DOUBLED, doubled))
        for name in found
        for target in [at_most(0.0) if name in OWN else None]
    ]


def _kill(contestant: _Contestant, count: int, patience: float) -> Batch:
    """Kill a worker when it has handled half of its messages, start it again, and wait until it has handled all."""
    with contestant.worker(*figures.USUAL) as worker:
        contestant.warm_up(worker)
        batch = contestant.send_while_paused(worker, count)
        contestant.wait(worker, batch, count // 2)
        worker.kill()
        worker.start()
        contestant.ledger.wait_for(batch, count, patience, worker.require_running)
    return batch
