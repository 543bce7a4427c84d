"""Clients at work in several processes, and the faults that come over them, at random."""

from __future__ import annotations

import math
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from jmsql import ConnectionFactory
from jmsql.testing import wait_for
from tests.faults.faulty_server import faulty_server
from tests.faults.ledger import CHANNELS, Account, Ledger
from tests.faults.network import Network, can_make_networks
from tests.faults.proxy import CutPoint, CuttingProxy
from tests.faults.work import AT_WORK, NEWS, SUBSCRIBERS, work
from tests.forked import ForkedProcess
from tests.integration.pooler.pgbouncer import pgbouncer

_PATIENCE = 90.0
"""Seconds for what is left to be done once the faults are over. A client behind the pooler is missed after 15."""

_POOL = 12

Route = str
ROUTES = _DIRECT, _PROXY, _POOLER, _NETWORK = "direct", "proxy", "pooler", "network"

_PROCESSES: dict[str, tuple[Route, tuple[str, ...]]] = {
    "first producer": (_PROXY, ("produce orders", "greet", "produce in groups")),
    "second producer": (_DIRECT, ("produce orders", "produce the rest", "publish news")),
    "first consumer": (_PROXY, ("take orders", "take invoices", "take parcels", "take greetings", "take groups")),
    "second consumer": (_DIRECT, ("listen to orders", "take letters", "listen to notes", "share news", "take groups")),
    "pooled consumer": (_POOLER, ("take orders", "take invoices", "take parcels", "share news")),
    "worker": (_DIRECT, ("work on jobs",)),
    "reader": (_PROXY, ("read all news", "read even news")),
    "awaiting client": (_PROXY, ("produce orders, awaited", "take orders, awaited")),
    "far client": (_NETWORK, ("produce orders", "take orders", "take parcels", "share news")),
    # What is received in an AUTO session is acknowledged before the client has it: it dies with the client.
    "survivor": (_PROXY, ("take postcards",)),
}
_PRODUCERS = ("first producer", "second producer", "awaiting client", "far client")
KILLED = [name for name in _PROCESSES if name != "survivor"]
"""The processes that may be killed."""


@dataclass
class Report:
    """What happened, and what became of the messages."""

    seed: int
    seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    accounts: list[Account] = field(default_factory=list)
    defects: list[str] = field(default_factory=list)
    left: int = 0

    @property
    def is_right(self) -> bool:
        """Whether every promise was kept."""
        return not self.left and not self.defects and all(account.is_right for account in self.accounts)

    def __str__(self) -> str:
        faults = ", ".join(f"{count} times {name}" for name, count in sorted(self.faults.items()))
        lines = [f"seed {self.seed}, {self.seconds:.0f} s: {faults}", *map(str, self.accounts)]
        if self.left:
            lines.append(f"{self.left} messages are still there")
        return "\n".join(lines + self.defects)


class Clients:
    """The processes of the clients.

    Args:
        urls: The ways to the server.
        network: Where clients on the network run; None: on this host, as the others.
        directory: Where their logs go.
        seed: Where their choices begin.
    """

    def __init__(self, urls: dict[Route, str], network: Network | None, directory: Path, seed: int) -> None:
        self._urls = urls
        self._network = network
        self._directory = directory
        self._seed = seed
        self._running: dict[str, ForkedProcess] = {}
        self._started: Counter[str] = Counter()
        self.defects: list[str] = []

    def start_all(self) -> None:
        """Start all processes, and return when they have begun."""
        for name in _PROCESSES:
            self.start(name)
        self.wait_until_at_work()

    def start(self, name: str) -> None:
        """Start a process, or its successor."""
        route, roles = _PROCESSES[name]
        self._log(name).unlink(missing_ok=True)
        self._started[name] += 1
        seed = f"{self._seed} {self._started[name]}"
        host = self._network.clients if route == _NETWORK and self._network is not None else None
        self._running[name] = ForkedProcess(work, host, name, seed, self._urls[route], *roles, log=self._log(name))

    def wait_until_at_work(self) -> None:
        """Return when all processes have begun."""
        for name in self._running:
            wait_for(lambda name=name: self._is_at_work(name), _PATIENCE)  # type: ignore[misc]

    def kill(self, name: str) -> None:
        """End a process as nothing can prevent."""
        self.look()
        self._running.pop(name).kill()

    def freeze(self, name: str, seconds: float) -> None:
        """Let a process do nothing for a while."""
        self._running[name].send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self._running[name].send_signal(signal.SIGCONT)

    def process_ids(self) -> dict[str, int]:
        """The numbers of the processes, by their names."""
        return {name: running.process_id for name, running in self._running.items()}

    def with_process(self, process: int | None) -> str | None:
        """Return the name of a process, if it is one of these."""
        return next((name for name, running in self._running.items() if running.process_id == process), None)

    def end(self, *names: str) -> None:
        """Let processes end in order."""
        for name in names:
            self._running[name].send_signal(signal.SIGTERM)
        for name in names:
            if self._running[name].wait(_PATIENCE) is None:
                self.defects.append(f"{name} does not end: {self._end_of_log(name)}")
        self.look()
        for name in names:
            self._running.pop(name).kill()

    def look(self) -> None:
        """Take note of processes that have ended by themselves."""
        for name, process in self._running.items():
            if process.exit_code():
                self.defects.append(f"{name} ended with exit code {process.exit_code()}: {self._end_of_log(name)}")

    def close(self) -> None:
        """End those that still run."""
        for process in self._running.values():
            process.kill()

    def _log(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def _is_at_work(self, name: str) -> bool:
        return self._log(name).exists() and AT_WORK in self._log(name).read_text()

    def _end_of_log(self, name: str) -> str:
        text = self._log(name).read_text(errors="replace")
        defect = text.find("DEFECT")
        return text[defect : defect + 6000] if defect >= 0 else text[-3000:]


class Storm:
    """Faults at random, for a time; then calm, until all is done.

    Args:
        seed: Where the choices begin. The same seed makes the same choices; what they meet differs.
        directory: Where logs go.
        tell: Is told what happens.
    """

    def __init__(self, seed: int, directory: Path, tell: Callable[[str], None] = lambda _: None) -> None:
        self._random = random.Random(seed)
        self._directory = directory
        self._tell = tell
        self._report = Report(seed)

    def run(
        self, seconds: float = math.inf, pause: float = 1.0, longest: float = 3.0, faults: float = math.inf
    ) -> Report:
        """Let it rage.

        Args:
            seconds: How long.
            pause: The mean time between two faults, in seconds.
            longest: The most seconds that a client is frozen, or the network swallows packets.
            faults: After how many faults it is over, if that is sooner.
        """
        self._longest = longest
        with ExitStack() as stack:
            self._network = stack.enter_context(Network()) if can_make_networks() else None
            self._server = stack.enter_context(
                faulty_server(address=None if self._network is None else self._network.server_address)
            )
            self._ledger = Ledger(self._server.url)
            self._ledger.create()
            self._proxy = stack.enter_context(CuttingProxy(self._server.url))
            pooler = stack.enter_context(pgbouncer(self._server.url, _POOL))
            urls = {
                _DIRECT: self._server.url,
                _PROXY: self._proxy.url,
                _POOLER: pooler.url(self._server.url),
                _NETWORK: self._server.url if self._network is None else self._server.network_url,
            }
            subscribe(self._server.url)
            self._clients = Clients(urls, self._network, self._directory, self._report.seed)
            stack.callback(self._clients.close)
            self._clients.start_all()
            started = time.monotonic()
            while (
                time.monotonic() - started < seconds
                and self._report.faults.total() < faults
                and not self._clients.defects
            ):
                time.sleep(min(self._random.expovariate(1 / pause), 5 * pause))
                self._strike()
                self._clients.look()
            self._report.seconds = time.monotonic() - started
            self._calm()
        return self._report

    def _strike(self) -> None:
        faults: dict[Callable[[], str], int] = {
            self._kill_client: 6,
            self._cut_connection: 6,
            self._freeze_client: 1,
            self._freeze_leader: 1,
            self._swallow_packets: 0 if self._network is None else 2,
            self._terminate_connections: 2,
            self._kill_backend: 1,
            self._kill_server: 1,
            self._stop_server_at_once: 1,
        }
        [fault] = self._random.choices(list(faults), list(faults.values()))
        what = fault()
        self._report.faults[what] += 1
        self._tell(what)

    def _kill_client(self) -> str:
        name = self._random.choice(KILLED)
        self._clients.kill(name)
        self._clients.start(name)
        return "client killed"

    def _cut_connection(self) -> str:
        self._proxy.cut(self._random.choice(list(CutPoint)))
        return "connection cut"

    def _freeze_client(self) -> str:
        self._clients.freeze(self._random.choice(list(_PROCESSES)), self._random.uniform(0.5, self._longest))
        return "client frozen for a while"

    def _freeze_leader(self) -> str:
        leader = self._clients.with_process(self._ledger.leading_process())
        if leader is None:
            return "no leader to freeze"
        self._clients.freeze(leader, self._longest)
        return "leader frozen"

    def _swallow_packets(self) -> str:
        assert self._network is not None
        self._network.swallow()
        time.sleep(self._random.uniform(0.5, self._longest))
        self._network.pass_on()
        return "packets swallowed"

    def _terminate_connections(self) -> str:
        self._server.terminate_backends(self._random.uniform(0.1, 1.0))
        return "connections terminated"

    def _kill_backend(self) -> str:
        self._server.kill_backend(self._random.random())
        self._server.wait_until_ready()
        return "server process killed"

    def _kill_server(self) -> str:
        self._server.kill(signal.SIGKILL)
        self._server.start()
        return "server killed"

    def _stop_server_at_once(self) -> str:
        self._server.kill(signal.SIGQUIT)
        self._server.start()
        return "server stopped immediately"

    def _calm(self) -> None:
        self._tell("calm")
        self._server.wait_until_ready()
        finish(self._clients, self._ledger, self._report)


def finish(clients: Clients, ledger: Ledger, report: Report) -> None:
    """Let the clients finish, and make up the accounts."""
    clients.wait_until_at_work()
    wait_for(lambda: clients.defects or ledger.used_channels() == CHANNELS.keys(), _PATIENCE)
    clients.end(*_PRODUCERS)
    _wait_until_done(clients, ledger, report)
    clients.end(*(name for name in _PROCESSES if name not in _PRODUCERS))
    report.left = ledger.waiting()
    report.accounts = ledger.accounts()
    report.defects += clients.defects


def _wait_until_done(clients: Clients, ledger: Ledger, report: Report) -> None:
    """Wait as long as the messages that wait become fewer."""
    while (before := ledger.waiting()) and not clients.defects:
        try:
            wait_for(lambda before=before: ledger.waiting() < before, _PATIENCE)  # type: ignore[misc]
        except AssertionError:
            report.defects += ledger.left()
            return
        clients.look()


def subscribe(url: str) -> None:
    """Make the durable subscriptions, before anything is published."""
    for name, selector in SUBSCRIBERS.items():
        with ConnectionFactory(url, client_id=name).create_connection() as connection:
            connection.create_session().create_durable_consumer(NEWS, name, selector)
    with ConnectionFactory(url).create_connection() as connection:
        connection.create_session().create_shared_durable_consumer(NEWS, "news shared")
