"""jmsql beside its peers, each with its own Python client, durability and the size of batches alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial

from benchmarks import provider
from benchmarks.database import BenchmarkDatabase
from benchmarks.measurement import BenchmarkResult, Contender, Target, Work, at_least, compare
from benchmarks.peers.peer import OpenPeer, Peer, Unavailable
from benchmarks.peers.pgmq import open_pgmq
from benchmarks.peers.pgqueuer import open_pgqueuer
from benchmarks.peers.procrastinate import open_procrastinate
from benchmarks.peers.rabbitmq import open_rabbitmq
from benchmarks.setting import Setting
from jmsql import AcknowledgeMode, DeliveryMode

_BATCH = 100
_SUBJECT = "jmsql"
_PEERS: dict[str, OpenPeer] = {
    "pgmq": open_pgmq,
    "PgQueuer": open_pgqueuer,
    "Procrastinate": open_procrastinate,
    "RabbitMQ": open_rabbitmq,
}


@dataclass(frozen=True, slots=True)
class _Race:
    """What jmsql and its peers all do.

    Args:
        title: What it is.
        subject: jmsql.
        batch: How many messages one commit or acknowledgement is for.
        sends: Whether messages are sent; else they are received.
        rabbitmq: How much faster than RabbitMQ it is to be, if at all; it is to be ahead of the others in any case.
    """

    title: str
    subject: Contender
    batch: int
    sends: bool
    rabbitmq: Target | None = None

    def compare(self, setting: Setting, peers: Sequence[Peer]) -> list[BenchmarkResult]:
        """Measure jmsql beside its peers."""
        messages = setting.effort.messages if self.batch > 1 else setting.effort.singles
        contenders = [self.subject, *(self._contender(peer, messages) for peer in peers)]
        targets: dict[str, Target | None] = {peer.name: at_least(1.0) for peer in peers}
        if "RabbitMQ" in targets:
            targets["RabbitMQ"] = self.rabbitmq
        return compare(self.title, setting.measure(contenders, messages), _SUBJECT, targets)

    def _contender(self, peer: Peer, messages: int) -> Contender:
        count = max(self.batch, int(messages * peer.share) // self.batch * self.batch)
        if self.sends:
            return Contender(peer.name, partial(peer.send, self.batch), messages=count)
        return Contender(peer.name, partial(peer.receive, self.batch), peer.fill, count)


def peers(setting: Setting) -> list[BenchmarkResult]:
    """Send and receive beside pgmq, PgQueuer, Procrastinate and RabbitMQ."""
    with ExitStack() as stack:
        present: list[Peer] = []
        for name, open_peer in _PEERS.items():
            setting.tell(f"starting {name}")
            try:
                present.append(stack.enter_context(open_peer(setting.database)))
            except Unavailable as unavailable:
                setting.skip(name, str(unavailable))
        return [comparison for race in _races(setting.database) for comparison in race.compare(setting, present)]


def _races(database: BenchmarkDatabase) -> list[_Race]:
    def receiver(
        queue: str,
        opened: Callable[[], AbstractContextManager[Work]],
        delivery_mode: DeliveryMode = DeliveryMode.PERSISTENT,
    ) -> Contender:
        return Contender(_SUBJECT, opened, partial(database.fill, queue, delivery_mode=delivery_mode))

    transacted = partial(provider.receive_in_transactions, database, "transacted", _BATCH)
    client = partial(provider.receive_in_batches, database, "client", AcknowledgeMode.CLIENT, _BATCH)
    not_persistent = partial(provider.receive_in_batches, database, "not persistent", AcknowledgeMode.CLIENT, _BATCH)
    return [
        _Race(
            "peers: send, 100 a commit",
            Contender(_SUBJECT, partial(provider.send_in_transactions, database, "sent", _BATCH)),
            _BATCH,
            sends=True,
            rabbitmq=at_least(3.0),
        ),
        _Race("peers: send, 1 a commit", Contender(_SUBJECT, partial(provider.send, database, "sent")), 1, sends=True),
        _Race(
            "peers: receive, 100 a transaction",
            receiver("transacted", transacted),
            _BATCH,
            sends=False,
            rabbitmq=at_least(1.5),
        ),
        _Race("peers: receive, 100 an acknowledgement", receiver("client", client), _BATCH, sends=False),
        _Race(
            "peers: receive NON_PERSISTENT, 100 an acknowledgement",
            receiver("not persistent", not_persistent, DeliveryMode.NON_PERSISTENT),
            _BATCH,
            sends=False,
            rabbitmq=at_least(1.0),
        ),
        _Race(
            "peers: receive, 1 a commit",
            receiver("single", partial(provider.receive, database, "single")),
            1,
            sends=False,
        ),
    ]
