"""What the worker handles: it ships what was ordered. The order, its task and the message are one transaction."""

from __future__ import annotations

from typing import Any

import jmsql
from examples.django_orders.models import Order
from examples.django_orders.tasks import tell_customer
from jmsql.django import app

ORDERS = jmsql.Queue("example django orders")


@app.listener(ORDERS)
def ship(body: dict[str, Any]) -> None:
    """Ship an order, and have its customer told."""
    order = Order.objects.select_for_update().get(pk=body["reference"])
    order.state = "shipped"
    order.save()
    tell_customer.enqueue(order.reference)
