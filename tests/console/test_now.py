"""The pages of what clients do at this moment."""

from __future__ import annotations

import re
from collections.abc import Callable

import jmsql
from jmsql.admin import Administration
from jmsql.testing import wait_for
from tests.console.http import Browsing
from tests.console.serving import Served
from tests.console.test_actions import send

Serve = Callable[..., Served]
ORDERS = jmsql.Queue("orders")


def test_a_message_leads_to_its_holder_and_back(console: Browsing, jmsql_factory: jmsql.ConnectionFactory) -> None:
    assert "Nobody receives" in console.get("/now").text
    send(jmsql_factory, "orders", "a", "b")
    with jmsql_factory.create_context(session_mode=jmsql.AcknowledgeMode.CLIENT) as context:
        received = context.create_consumer(ORDERS, "color = 'a'").receive(timeout=60)
        assert received is not None
        with Administration(jmsql_factory) as administration:
            wait_for(lambda: any(each.consumers for each in administration.now()))
        rows = console.get("/now").text.partition("<tbody>")[2]
        [connection] = set(re.findall(r"/connections/[0-9]+", rows))
        [message] = set(re.findall(r"/destinations/[0-9]+/messages/present/[0-9]+/[0-9]+", rows))
        assert connection in console.get(message).text
        page = console.get(connection).text
        assert message in page
        assert received.jms_message_id is not None
        assert received.jms_message_id in page
        assert connection in console.get("/clients").text
        assert connection in console.get(console.find("orders")).text
        assert "color = &#39;a&#39;" in page
        hidden = Browsing(console.served)
        assert hidden.get("/now?live=1").text.startswith(("<p>", "\n"))
        received.acknowledge()
    for path in ("/connections/0", "/connections/999999", "/connections/x", f"/connections/{2**63}"):
        assert console.get(path).status == 404
