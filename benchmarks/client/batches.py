"""Messages that travel in batches of 100."""

from __future__ import annotations

from functools import partial

from benchmarks import floor, provider
from benchmarks.measurement import BenchmarkResult, Contender, at_least, compare
from benchmarks.setting import Setting
from jmsql import AcknowledgeMode

_BATCH = 100


def transacted_send(setting: Setting) -> list[BenchmarkResult]:
    """Send, 100 messages a commit."""
    database = setting.database
    contenders = [
        Contender("jmsql", partial(provider.send_in_transactions, database, "jmsql", _BATCH)),
        Contender("floor", partial(floor.send_in_transactions, database, "floor", _BATCH)),
    ]
    samples = setting.measure(contenders, setting.effort.messages)
    return compare("transacted-send", samples, "jmsql", {"floor": at_least(1.1)})


def transacted_receive(setting: Setting) -> list[BenchmarkResult]:
    """Receive in a transacted session, 100 messages a commit."""
    database = setting.database
    contenders = [
        Contender(
            "jmsql",
            partial(provider.receive_in_transactions, database, "jmsql", _BATCH),
            partial(database.fill, "jmsql"),
        ),
        Contender(
            "floor",
            partial(floor.receive, database, "floor", _BATCH, transacted=True),
            partial(database.fill, "floor"),
        ),
    ]
    samples = setting.measure(contenders, setting.effort.messages)
    return compare("transacted-receive", samples, "jmsql", {"floor": at_least(0.8)})


def acknowledged_receive(setting: Setting) -> list[BenchmarkResult]:
    """Receive without a transaction: CLIENT with an acknowledgement for 100 messages, and DUPS_OK."""
    database = setting.database
    targets = {AcknowledgeMode.CLIENT: at_least(0.85), AcknowledgeMode.DUPS_OK: at_least(0.6)}
    contenders = [
        Contender(
            f"jmsql {mode.name}",
            partial(provider.receive_in_batches, database, mode.name, mode, _BATCH),
            partial(database.fill, mode.name),
        )
        for mode in targets
    ]
    contenders.append(
        Contender("floor", partial(floor.claim, database, "floor", _BATCH), partial(database.fill, "floor"))
    )
    samples = setting.measure(contenders, setting.effort.messages)
    return [
        comparison
        for mode, target in targets.items()
        for comparison in compare("acknowledged-receive", samples, f"jmsql {mode.name}", {"floor": target})
    ]
