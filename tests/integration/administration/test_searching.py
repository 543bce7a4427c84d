"""Searching the messages of all queues and subscriptions."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

import jmsql
from jmsql.admin import Administration, FoundMessage, Place, Position
from jmsql.store.administration import looks

SELECTORS = {
    "message": {"message_id": "ID:{id}"},
    "bare upper-case identifier": {"message_id": " {ID} "},
    "correlation": {"correlation_id": "it's-7"},
    "group": {"group": "C-7"},
    "type": {"jms_type": "order"},
    "number": {"properties": {"customer": 7}},
    "text for a number": {"properties": {"customer": "7"}},
    "boolean": {"properties": {"urgent": True}},
    "text for a boolean": {"properties": {"urgent": "TRUE"}},
    "text": {"properties": {"color": "dark 'blue'"}},
    "several": {"properties": {"customer": 7, "urgent": True}, "group": "C-7", "selector": "JMSPriority = 4 OR 1 = 2"},
    "selector": {"selector": "weight > 2.5"},
}


@pytest.fixture
def sent(jmsql_factory: jmsql.ConnectionFactory, administration: Administration) -> Iterator[jmsql.Message]:
    """A message in two queues, in a subscription and delayed, among others."""
    administration.subscribe("prices", "web", shared=True)
    with jmsql_factory.create_context() as context:
        for name in ("orders", "invoices"):
            context.create_producer().send(jmsql.Queue(name), "another")
        message = context.create_text_message("it")
        message.jms_correlation_id, message.jms_type = "it's-7", "order"
        message.set_string_property("JMSXGroupID", "C-7")
        message.set_int_property("customer", 7)
        message.set_boolean_property("urgent", True)
        message.set_string_property("color", "dark 'blue'")
        message.set_double_property("weight", 3.5)
        for destination in (jmsql.Queue("orders"), jmsql.Queue("invoices"), jmsql.Topic("prices")):
            context.create_producer().send(destination, message)
        context.create_producer(delivery_delay=3600).send(jmsql.Queue("later"), message)
        yield message


def places_of(found: list[FoundMessage]) -> list[tuple[str, str | None, str]]:
    return [(str(each.message.jms_destination), each.subscription, each.delivery.state) for each in found]


@pytest.mark.parametrize("terms", SELECTORS.values(), ids=SELECTORS)
def test_messages_are_found_wherever_they_are(
    sent: jmsql.Message, administration: Administration, terms: dict[str, str]
) -> None:
    identifier = (sent.jms_message_id or "").removeprefix("ID:")
    given = {
        name: value.format(id=identifier, ID=identifier.upper()) if name == "message_id" else value
        for name, value in terms.items()
    }
    found = administration.search(**given)  # type: ignore[arg-type]
    everywhere = [
        ("queue://orders", None, "ready"),
        ("queue://invoices", None, "ready"),
        ("topic://prices", "web", "ready"),
        ("queue://later", None, "delayed"),
    ]
    places = places_of(found.messages)
    # Each send gives the message another identifier.
    assert sorted(places) == sorted(everywhere[3:] if "message_id" in terms else everywhere)
    assert places[-1] == everywhere[3]
    assert found.next is None
    for each in found.messages:
        again = administration.at(each.number, each.delivery.place)
        assert again is not None
        assert again.message.jms_message_id == each.message.jms_message_id


def test_search_goes_on_where_the_one_before_ended(
    administration: Administration, jmsql_clean_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looks, "WINDOW", 10)
    with psycopg.connect(jmsql_clean_url) as database:
        database.execute(
            "insert into jmsql_internal.queue (name) select 'queue ' || n from generate_series(1, 40) n;"
            "insert into jmsql_internal.message (queue_id, inverse_priority, jms_delivery_mode, message_type, jms_type)"
            "select q.queue_id, mod(n, 10), 2, 'Message', case when mod(n, 3) = 0 then 'third' end "
            "from jmsql_internal.queue q, generate_series(1, 9) n"
        )
    for limit, time_limit in ((7, 2.0), (100, 0.0), (3, 0.0)):
        seen: list[tuple[int, Place]] = []
        after, searches = None, 0
        while True:
            found = administration.search(jms_type="third", after=after, limit=limit, time_limit=time_limit)
            assert len(found.messages) <= limit
            seen += [(each.number, each.delivery.place) for each in found.messages]
            searches += 1
            if found.next is None:
                break
            after = Position.parse(str(found.next))
        assert len(seen) == len(set(seen)) == 120
        assert searches > 15
    assert administration.search(jms_type="none").examined == 360


def test_search_refuses_conditions_without_sense(administration: Administration) -> None:
    with pytest.raises(ValueError, match="has a condition"):
        administration.search()
    for name in ("a b", "x = 1 OR y", "", "1a"):
        with pytest.raises(jmsql.InvalidSelectorException, match="has the name"):
            administration.search(properties={name: "1"})
    with pytest.raises(jmsql.InvalidSelectorException):
        administration.search("color = = 1", group="x")
    with pytest.raises(TypeError, match="`next` of a search"):
        administration.search(group="x", after="12.p5.1")  # type: ignore[arg-type]
    for wrong in ("x", "12", "12.p11.1", f"{2**31}.p5.1", "12.p5.1 "):
        with pytest.raises(ValueError, match="Expected the p"):
            Position.parse(wrong)
    assert administration.search(message_id="no such thing").messages == []
