"""The worker: it ships what was ordered. The message and the order's new state are one transaction."""

from __future__ import annotations

from typing import Any

from sqlalchemy import orm

from examples.fastapi_orders.tables import Order
from jmsql.worker import Application

app = Application()


@app.listener("example orders")
def ship(body: dict[str, Any], database: orm.Session) -> None:
    """Ship an order."""
    order = database.get_one(Order, body["reference"])
    order.state = "shipped"
