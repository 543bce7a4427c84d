"""The worker: two listeners to one topic, each with a subscription of its own."""

from __future__ import annotations

from typing import Any

from sqlalchemy import orm

import jmsql
from examples.flask_orders.tables import CourierRide, Order
from jmsql.worker import Application

ORDERS_PLACED = jmsql.Topic("example orders placed")

app = Application()


@app.listener(ORDERS_PLACED, subscription="shipping")
def ship(body: dict[str, Any], database: orm.Session) -> None:
    """Ship an order. The message and the order's new state are one transaction."""
    order = database.get_one(Order, body["reference"])
    order.state = "shipped"


@app.listener(ORDERS_PLACED, subscription="courier", selector="express = TRUE")
def call_courier(body: dict[str, Any], database: orm.Session) -> None:
    """Call the courier for an order that is in a hurry."""
    database.add(CourierRide(reference=body["reference"]))
