"""What a redelivery policy costs while nothing fails: a queue that has one beside a queue that has none."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

from benchmarks import provider
from benchmarks.database import BenchmarkDatabase
from benchmarks.measurement import BenchmarkResult, Contender, Work, at_least, compare
from benchmarks.setting import Setting
from jmsql import AcknowledgeMode
from jmsql.admin import Administration

_BATCH = 100
_MAXIMUM_DELIVERIES = 5
_TARGET = at_least(0.85)

_Receive = Callable[[BenchmarkDatabase, str], AbstractContextManager[Work]]


def redelivery_policy(setting: Setting) -> list[BenchmarkResult]:
    """Receive from a queue with a redelivery policy, beside one without: transacted and CLIENT."""
    modes: dict[str, tuple[_Receive, int]] = {
        "transacted, 100 a commit": (_transacted(_BATCH), setting.effort.messages),
        "transacted, 1 a commit": (_transacted(1), setting.effort.singles),
        "CLIENT, 100 an acknowledgement": (_client(_BATCH), setting.effort.messages),
        "CLIENT, 1 an acknowledgement": (_client(1), setting.effort.singles),
    }
    found: list[BenchmarkResult] = []
    for mode, (receive, messages) in modes.items():
        without, counting = f"{mode}, no policy", f"{mode}, policy"
        with Administration(setting.database.url) as administration:
            administration.create_queue(counting, maximum_deliveries=_MAXIMUM_DELIVERIES)
        contenders = [
            Contender(queue, partial(receive, setting.database, queue), partial(setting.database.fill, queue))
            for queue in (without, counting)
        ]
        samples = setting.measure(contenders, messages)
        found += compare("redelivery-policy", samples, counting, {without: _TARGET})
    return found


def _transacted(batch: int) -> _Receive:
    return lambda database, queue: provider.receive_in_transactions(database, queue, batch)


def _client(batch: int) -> _Receive:
    return lambda database, queue: provider.receive_in_batches(database, queue, AcknowledgeMode.CLIENT, batch)
