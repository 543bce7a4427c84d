"""The tests: the real handlers and tasks run in the transaction of the test, which is rolled back."""

from __future__ import annotations

from typing import Any

from django.db import connection
from django.test import TestCase

from examples.django_orders.messages import ORDERS, ship
from examples.django_orders.models import Order
from jmsql.django import app
from jmsql.testing import call, sent


class Orders(TestCase):
    """From the customer's request to the shipment."""

    def place(self, reference: str) -> Any:
        """Order something."""
        order = {"reference": reference, "goods": "two kites"}
        return self.client.post("/orders", order, content_type="application/json")

    def test_an_order_is_shipped_and_its_customer_told(self) -> None:
        assert self.place("A1").status_code == 201
        assert [message.get_body(dict) for message in sent(connection, ORDERS)] == [{"reference": "A1"}]
        assert len(app.drain()) == 2  # the message, and the task that its handler has enqueued
        order = Order.objects.get(pk="A1")
        assert order.state == "shipped"
        assert order.told_at is not None

    def test_a_reference_that_was_used_before_is_refused_and_nothing_is_sent(self) -> None:
        self.place("A1")
        assert self.place("A1").status_code == 409
        assert len(sent(connection, ORDERS)) == 1

    def test_an_order_that_is_not_there_is_not_shipped(self) -> None:
        with self.assertRaises(Order.DoesNotExist):
            call(app, ship, {"reference": "none"})
