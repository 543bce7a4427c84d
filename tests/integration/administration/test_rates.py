"""Rates as administrators list and keep them, in Python and in the shell."""

from __future__ import annotations

import psycopg
import pytest

import jmsql as library
from jmsql.admin import Administration
from tests.integration.cli.conftest import Command, jmsql

__all__ = ["jmsql"]


def test_rates_are_listed_and_kept_for_some_days(
    jmsql: Command, jmsql_factory: library.ConnectionFactory, jmsql_clean_url: str
) -> None:
    with Administration(jmsql_factory) as administration, psycopg.connect(jmsql_clean_url, autocommit=True) as database:
        administration.keep_rates(7)  # a test before may have changed it
        assert administration.rates() == []
        assert jmsql("rates").text == "No rates are noted yet.\n"
        administration.create_queue("orders")
        administration.subscribe("prices", "web", shared=True)
        database.execute(
            "insert into jmsql_internal.rate "
            "select d, date_trunc('minute', now()) - make_interval(mins => n), 10 * n, 6, 1, 0, 9000000, 4, 1000000 "
            "from (select queue_id from jmsql_internal.queue where name = 'orders' union all select 0 "
            "union all select -topic_id from jmsql_internal.topic "
            "union all select queue_id from jmsql_internal.subscription) q (d), generate_series(1, 3) n"
        )
        last, *_ = orders = administration.rates("orders")
        assert [each.sent for each in orders] == [10, 20, 30]
        assert (last.kind, last.destination, last.time_in_queue, last.handling_time) == ("queue", "orders", 1.5, 0.25)
        assert {(each.kind, each.subscription) for each in administration.rates("prices")} == {
            ("topic", None),
            ("subscription", "web"),
        }
        assert [each.kind for each in administration.rates(limit=2)] == ["all", "all"]
        assert administration.rates("o\0'--") == []
        header, row = jmsql("rates", "orders", "-n", "1").text.splitlines()
        assert header.split() == ["minute", "destination", "in", "out", "back", "in", "queue", "handling"]
        assert row.split()[2:] == ["orders", "10", "6", "1", "1.500", "s", "0.250", "s"]
        [document] = jmsql("rates", "orders", "-n", "1", "--json").document
        assert (document["sent"], document["handling_time"]) == (10, 0.25)

        assert administration.rates_days() == 7
        assert jmsql("rates", "--keep-days", "30").text == "Rates are kept for 30 days.\n"
        assert jmsql("rates", "--keep-days", "0", "--json").document == {"rates_days": 0}
        assert administration.rates_days() == 0
        assert jmsql("rates", "nowhere").text.startswith("Rates are not noted: --keep-days 7")
        assert jmsql("rates", "--keep-days", "367").exit_code == 2
        for wrong in (-1, 367):
            with pytest.raises(ValueError, match="days"):
                administration.keep_rates(wrong)
        with pytest.raises(TypeError, match="name of a queue or topic"):
            administration.rates(5)  # type: ignore[arg-type]
