"""What schedules cost a client where none is due."""

from __future__ import annotations

from typing import Any

import pytest

from jmsql.store.control import ticking
from jmsql.store.control.ticking import Ticking
from jmsql.store.statement import Query


class Server:
    """Answers each statement with no schedules, and counts them."""

    def __init__(self) -> None:
        self.statements = 0

    def run(self, work: Any) -> list[Any]:
        assert isinstance(work, Query)
        self.statements += 1
        return []


@pytest.mark.parametrize(
    ("takes_part", "is_possible", "statements"), [(True, True, 10), (False, True, 0), (True, False, 0)]
)
def test_a_client_asks_once_a_minute_where_nothing_is_due(
    monkeypatch: pytest.MonkeyPatch, takes_part: bool, is_possible: bool, statements: int
) -> None:
    now = 1000.0
    monkeypatch.setattr(ticking, "monotonic", lambda: now)
    server: Any = Server()
    duty = Ticking(lambda: takes_part, 60.0, is_possible=is_possible)
    for _ in range(600):
        duty.run(server)
        assert duty.seconds_to_next() <= 60.0
        now += 1.0
    assert server.statements == statements
    duty.check_soon()
    duty.run(server)
    assert server.statements == statements + (statements > 0)
