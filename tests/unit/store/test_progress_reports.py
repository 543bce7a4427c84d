"""Progress that is written down later: none is lost if that fails, and none is written twice."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from jmsql.exceptions import JMSException
from jmsql.store.control import progress_reports
from jmsql.store.control.progress_reports import ProgressReports
from jmsql.store.receiving.progress import ClaimedMessage, Progress
from jmsql.store.rows.message_rows import MessageKey


class Server:
    """Refuses the first statement, and meets another report during it."""

    def __init__(self, reports: ProgressReports) -> None:
        self.statements = 0
        self._reports = reports

    def run(self, _: Any) -> None:
        self.statements += 1
        if self.statements == 1:
            self._reports.add(message(2), Progress(0.7, "later"))
            raise JMSException("no lock was granted within the time limit", "55P03")


def message(sequence: int) -> ClaimedMessage:
    return ClaimedMessage(MessageKey(1, 5, sequence), 7)


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    hours = count(3600.0, 3600.0)
    monkeypatch.setattr(progress_reports, "monotonic", lambda: next(hours))


def test_reports_are_written_once_though_a_statement_fails() -> None:
    reports = ProgressReports(lambda: None)
    server = Server(reports)
    reports.add(message(1), Progress(0.5, "half"))
    reports.add(message(2), Progress(0.6, "sooner"))
    with pytest.raises(JMSException):
        reports.run(server)  # type: ignore[arg-type]
    reports.run(server)  # type: ignore[arg-type]
    assert server.statements == 2
    assert reports.seconds_to_next() == float("inf")
    reports.run(server)  # type: ignore[arg-type]
    assert server.statements == 2
