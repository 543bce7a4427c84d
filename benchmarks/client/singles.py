"""Messages each of which commits by itself."""

from __future__ import annotations

from functools import partial

from benchmarks import floor, provider
from benchmarks.measurement import BenchmarkResult, Contender, at_least, compare
from benchmarks.setting import Setting


def single_send(setting: Setting) -> list[BenchmarkResult]:
    """Send one message a commit."""
    database = setting.database
    contenders = [
        Contender("jmsql", partial(provider.send, database, "jmsql")),
        Contender("floor", partial(floor.send, database, "floor")),
    ]
    samples = setting.measure(contenders, setting.effort.singles)
    return compare("single-send", samples, "jmsql", {"floor": at_least(0.92)})


def non_persistent_send(setting: Setting) -> list[BenchmarkResult]:
    """Send one NON_PERSISTENT message a commit, beside PERSISTENT ones."""
    database = setting.database
    contenders = [
        Contender("jmsql NON_PERSISTENT", partial(provider.send, database, "weak", persistent=False)),
        Contender("jmsql PERSISTENT", partial(provider.send, database, "jmsql")),
        Contender("floor, asynchronous commit", partial(floor.send, database, "floor", persistent=False)),
    ]
    samples = setting.measure(contenders, setting.effort.singles)
    targets = {"jmsql PERSISTENT": None, "floor, asynchronous commit": None}
    return compare("non-persistent-send", samples, "jmsql NON_PERSISTENT", targets)


def automatic_receive(setting: Setting) -> list[BenchmarkResult]:
    """Receive in an AUTO session, one message a commit."""
    database = setting.database
    contenders = [
        Contender("jmsql", partial(provider.receive, database, "jmsql"), partial(database.fill, "jmsql")),
        Contender("floor", partial(floor.receive, database, "floor", 1), partial(database.fill, "floor")),
    ]
    samples = setting.measure(contenders, setting.effort.singles)
    return compare("automatic-receive", samples, "jmsql", {"floor": at_least(0.85)})
