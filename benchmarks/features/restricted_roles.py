"""What row security costs: a role that may use some of the queues, beside the tables' owner."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import sqlalchemy

from benchmarks import provider
from benchmarks.database import BenchmarkDatabase
from benchmarks.measurement import BenchmarkResult, Contender, Work, at_least, compare
from benchmarks.setting import Setting
from jmsql import AcknowledgeMode
from jmsql.admin import Administration

_BATCH = 100
_OTHER_GRANTS = 50
_TARGET = at_least(0.85)

_Mode = Callable[[BenchmarkDatabase, str], AbstractContextManager[Work]]


def row_security(setting: Setting) -> list[BenchmarkResult]:
    """Send and receive as a role that has access to 51 queues, beside the tables' owner."""
    batches: dict[str, _Mode] = {
        "send, 100 a commit": lambda database, queue: provider.send_in_transactions(database, queue, _BATCH),
        "receive, 100 a transaction": lambda database, queue: provider.receive_in_transactions(database, queue, _BATCH),
        "CLIENT, 100 an acknowledgement": lambda database, queue: provider.receive_in_batches(
            database, queue, AcknowledgeMode.CLIENT, _BATCH
        ),
    }
    singles: dict[str, _Mode] = {"send, 1 a commit": provider.send, "AUTO receive": provider.receive}
    found: list[BenchmarkResult] = []
    with _role(setting.database) as (restricted, role), Administration(setting.database.url) as administration:
        for mode, work in (batches | singles).items():
            queues = {"owner": f"{mode}, owner", "role": f"{mode}, role"}
            for queue in queues.values():
                administration.create_queue(queue)
            administration.grant(queues["role"], role, send=True, receive=True)
            contenders = [
                Contender(
                    queues[name],
                    partial(work, database, queues[name]),
                    None if mode.startswith("send") else partial(setting.database.fill, queues[name]),
                )
                for name, database in {"owner": setting.database, "role": restricted}.items()
            ]
            messages = setting.effort.messages if mode in batches else setting.effort.singles
            samples = setting.measure(contenders, messages)
            found += compare("row-security", samples, queues["role"], {queues["owner"]: _TARGET})
    return found


@contextmanager
def _role(database: BenchmarkDatabase) -> Iterator[tuple[BenchmarkDatabase, str]]:
    """Make a role with access to queues that are not measured, and yield the database as the role sees it."""
    role, password = f"jmsql_benchmark_{secrets.token_hex(6)}", secrets.token_hex(16)
    database.execute(f"create role {role} login password '{password}'")
    try:
        with Administration(database.url) as administration:
            for number in range(_OTHER_GRANTS):
                administration.create_queue(f"other {number}")
                administration.grant(f"other {number}", role, send=True, receive=True)
        url = sqlalchemy.make_url(database.url).set(username=role, password=password)
        restricted = BenchmarkDatabase(url.render_as_string(hide_password=False))
        yield restricted, role
    finally:
        database.execute(f"drop owned by {role}")
        database.execute(f"drop role {role}")
