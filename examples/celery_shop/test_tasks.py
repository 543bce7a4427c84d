"""The tests of the tasks, which run them in a transaction that is rolled back."""

from typing import Any

import psycopg
import pytest

import jmsql
from examples.celery_shop import stand_ins
from examples.celery_shop.tasks import Letter, app, report, write_to
from jmsql.worker import Reject, RetryAfter


def test_a_letter_is_sent(jmsql_transaction: psycopg.Connection[Any]) -> None:
    write_to.send(jmsql_transaction, Letter("ann@example.org", "Hello"))
    app.drain(transaction=jmsql_transaction)
    assert ("ann@example.org", "Hello") in stand_ins.sent


@pytest.mark.parametrize(("address", "error"), [("ann", Reject), ("busy@example.org", RetryAfter)])
def test_a_letter_is_rejected_or_waits(
    jmsql_transaction: psycopg.Connection[Any], address: str, error: type[Exception]
) -> None:
    write_to.send(jmsql_transaction, Letter(address, "Hello"))
    with pytest.raises(error):
        app.drain(transaction=jmsql_transaction)


def test_a_report_is_made(jmsql_transaction: psycopg.Connection[Any]) -> None:
    identifier = report.send(jmsql_transaction, "2026-11")
    app.drain(transaction=jmsql_transaction, only=report)
    assert jmsql.result(jmsql_transaction, identifier).get(0) == {"orders": 11}


def test_a_report_that_takes_too_long_is_discarded(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(month: str) -> dict[str, int]:
        raise TimeoutError(month)

    monkeypatch.setattr(stand_ins, "add_up", endless)
    with pytest.raises(TimeoutError):
        report("2026-12")
    assert stand_ins.discarded == ["2026-12"]
