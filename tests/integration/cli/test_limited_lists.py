"""Lists that end at their limit, and say so."""

from __future__ import annotations

import jmsql as library
from jmsql.admin import Administration
from jmsql.testing import receive_all
from tests.console.kept_results import keep
from tests.console.test_pages import fail_all
from tests.integration.cli.conftest import Command

LISTS = (
    *(("queues",), ("browse", "orders"), ("dead-letters",), ("activity",)),
    *(("history", "list"), ("batch", "list"), ("result", "list")),
)


def test_lists_say_that_there_are_more(
    jmsql: Command, jmsql_factory: library.ConnectionFactory, jmsql_clean_url: str
) -> None:
    with Administration(jmsql_factory) as administration:
        administration.create_queue("failing", maximum_deliveries=1)
        administration.create_queue("kept", history=True)
        for queue in ("orders", "failing", "kept"):
            jmsql("send", queue, "x", "--count", "3")
        administration.pause("orders")
    fail_all(jmsql_factory, "failing", ValueError("no"))
    with jmsql_factory.create_context() as context:
        assert len(receive_all(context.create_consumer(library.Queue("kept")))) == 3
        for name in "abc":
            with library.batch(context, name, on_end="ends"):
                pass
    keep(jmsql_clean_url, "orders", "done", 3, value="1")
    for words in LISTS:
        limited, whole = jmsql(*words, "--limit", "2"), jmsql(*words, "--limit", "100")
        assert len(limited.text.splitlines()) == 3, words
        assert "There are more than 2: --limit shows more of them" in limited.errors, words
        assert len(whole.text.splitlines()) > 3, words
        assert "There are more than" not in whole.errors, words
        assert "There are more than 2" in jmsql(*words, "--limit", "2", "--json").errors, words
