"""`jmsql history`, and how a destination comes to keep it."""

from __future__ import annotations

import pytest

import jmsql as library
from tests.integration.cli.conftest import Asked, Command


def _handled(jmsql: Command, *bodies: str) -> None:
    jmsql("destination", "create", "orders")
    assert jmsql("destination", "set", "orders", "--history", "--history-days", "7").exit_code == 0
    for body in bodies:
        jmsql("send", "orders", body, "-p", "color=blue")
        assert jmsql("receive", "orders").exit_code == 0


class TestSettings:
    def test_a_destination_keeps_history_from_then_on(self, jmsql: Command) -> None:
        jmsql("send", "orders", "before")
        jmsql("receive", "orders")
        _handled(jmsql, "after")
        assert [line["body"] for line in jmsql("history", "list", "--json").lines] == ["after"]
        settings = jmsql("destination", "show", "orders", "--json").document["settings"]
        assert settings == {"history": True, "history_days": 7}

    def test_and_no_longer(self, jmsql: Command) -> None:
        _handled(jmsql, "first")
        assert jmsql("destination", "set", "orders", "--no-history", "--reset", "history-days").exit_code == 0
        jmsql("send", "orders", "second")
        jmsql("receive", "orders")
        assert len(jmsql("history", "list", "--json").lines) == 1
        assert jmsql("destination", "show", "orders", "--json").document["settings"] == {}


class TestList:
    def test_the_last_one_comes_first(self, jmsql: Command) -> None:
        _handled(jmsql, "first", "second")
        outcome = jmsql("history", "list", "orders")
        header, second, first = outcome.text.splitlines()
        assert header.split("  ")[0] == "left at"
        assert second.rstrip().endswith("color=blue  second")
        assert first.rstrip().endswith("color=blue  first")
        assert " orders " in first
        assert " acknowledged " in first

    def test_a_line_of_json_tells_all(self, jmsql: Command) -> None:
        _handled(jmsql, "order")
        [line] = jmsql("history", "list", "--json").lines
        assert (line["body"], line["properties"], line["type"]) == ("order", {"color": "blue"}, "TextMessage")
        assert (line["destination"], line["outcome"], line["delivery_count"]) == ("orders", "acknowledged", 1)
        assert line["time_in_queue"] < 60
        assert line["consumed_by"] is not None

    def test_options_filter_the_listed_messages(self, jmsql: Command) -> None:
        _handled(jmsql, "first", "second")

        def number(*options: str) -> int:
            return len(jmsql("history", "list", *options, "--json").lines)

        assert number("--since", "1h", "--outcome", "acknowledged") == 2
        assert number("--limit", "1") == 1
        assert number("--selector", "color = 'blue'") == 2
        assert number("--until", "2020-01-01") == 0
        assert number("topic://orders") == 0
        assert number("--outcome", "expired") == 0
        assert jmsql("history", "list", "--until", "2020-01-01T12:00").exit_code == 1

    def test_another_value_than_a_time_or_outcome_is_refused(self, jmsql: Command) -> None:
        outcome = jmsql("history", "list", "--since", "yesterday")
        assert (outcome.exit_code, "is not a time" in outcome.errors) == (2, True)
        outcome = jmsql("history", "list", "--outcome", "lost")
        assert (outcome.exit_code, "not an outcome" in outcome.errors) == (2, True)
        assert jmsql("history", "list", "--selector", "color =").exit_code == 2

    def test_no_message(self, jmsql: Command) -> None:
        outcome = jmsql("history", "list")
        assert (outcome.exit_code, outcome.text, outcome.errors) == (1, "", "No message found.\n")


class TestShow:
    def test_a_message_is_shown_with_its_end(self, jmsql: Command) -> None:
        _handled(jmsql, "order")
        [line] = jmsql("history", "list", "--json").lines
        text = jmsql("history", "show", line["message_id"]).text
        assert "outcome: acknowledged" in text
        assert "property color (String): blue" in text
        assert text.endswith("order\n\n")
        assert jmsql("history", "show", line["message_id"], "--json").lines == [line]

    def test_it_is_not_there(self, jmsql: Command) -> None:
        assert jmsql("history", "show", "ID:nothing").exit_code == 1


class TestDays:
    def test_each_day_has_a_partition(self, jmsql: Command) -> None:
        _handled(jmsql, "order")
        document = jmsql("history", "days", "--json").document
        partitions = [day["partition"] for day in document]
        assert all(name.startswith("jmsql_internal.message_history_2") for name in partitions)
        assert not document[-1]["settled"]
        assert document[-1]["day"] in jmsql("history", "days").text


class TestReplay:
    def test_messages_are_sent_again(self, jmsql: Command) -> None:
        _handled(jmsql, "first", "second")
        jmsql("destination", "create", "again")
        sent = jmsql("history", "replay", "orders", "--since", "1h", "--to", "again", "--yes")
        assert (sent.exit_code, sent.text) == (0, "Sent 2 messages of queue://orders to the queue 'again'.\n")
        lines = jmsql("receive", "again", "--all", "--json").lines
        assert [line["body"] for line in lines] == ["first", "second"]
        again = jmsql("history", "replay", "orders", "--since", "1h", "--to", "again", "--yes", "--json").document
        assert again == {"from": "queue://orders", "to": "queue://again", "sent": 2}
        with_scheme = ("history", "replay", "queue://orders", "--since", "1h", "--to", "queue://again", "--yes")
        assert jmsql(*with_scheme, "--json").document["to"] == "queue://again"
        assert jmsql(*with_scheme).text.endswith("to the queue 'again'.\n")

    def test_it_asks_first(self, jmsql: Command) -> None:
        _handled(jmsql, "order")
        outcome = jmsql("history", "replay", "orders", "--since", "1h", "--to", "orders")
        assert (outcome.exit_code, "--yes" in outcome.errors) == (2, True)
        assert jmsql("receive", "orders").exit_code == 1

    @pytest.mark.parametrize("until", [(), ("--until", "2999-01-01")], ids=["now", "in future"])
    def test_no_message_is_sent_that_leaves_before_the_answer(
        self, jmsql: Command, jmsql_asked: Asked, until: tuple[str, ...]
    ) -> None:
        _handled(jmsql, "counted")
        jmsql("destination", "create", "again")
        outcome = jmsql_asked(
            *("history", "replay", "orders", "--since", "1h", "--to", "again", *until),
            meanwhile=lambda: _handled(jmsql, "later"),
        )
        assert "Send 1 message to the queue 'again'?" in outcome.errors
        assert outcome.exit_code == 0
        assert jmsql("receive", "again", "--all").text == "counted\n"

    def test_the_queue_is_not_there(self, jmsql: Command) -> None:
        _handled(jmsql, "order")
        outcome = jmsql("history", "replay", "orders", "--since", "1h", "--to", "nowhere", "--yes")
        assert (outcome.exit_code, "nowhere" in outcome.errors) == (3, True)


class TestPrune:
    def test_old_days_are_removed(self, jmsql: Command, jmsql_factory: library.ConnectionFactory) -> None:
        _handled(jmsql, "order")
        assert jmsql("history", "prune", "--json").document == {"days": 0, "about_messages": 0}
        assert jmsql("history", "prune", "--before", "2020-01-01", "--yes").exit_code == 0
        with library.admin.Administration(jmsql_factory) as administration:
            assert administration.history.count("orders") == 1
        outcome = jmsql("history", "prune", "--before", "9999-01-01", "--destination", "orders", "--yes", "--json")
        assert outcome.document == {"days": 0, "about_messages": 1}
        assert jmsql("history", "list").exit_code == 1

    def test_days_that_are_not_over_stay(self, jmsql: Command) -> None:
        _handled(jmsql, "order")
        outcome = jmsql("history", "prune", "--before", "9999-01-01", "--yes")
        assert (outcome.exit_code, "may still grow" in outcome.errors) == (3, True)
        assert len(jmsql("history", "list", "--json").lines) == 1

    def test_it_asks_first(self, jmsql: Command) -> None:
        assert jmsql("history", "prune", "--before", "2020-01-01").exit_code == 2
        assert jmsql("history", "prune", "--destination", "orders").exit_code == 2
