"""What the backend receives: orders, which it ships, and requests for a price."""

from __future__ import annotations

from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

import jmsql.asyncio as jms
from examples.fastapi_orders.tables import Order
from jmsql.worker import Application

ORDERS = jms.Queue("example orders")
QUOTES = jms.Queue("example quotes")
SHIPMENTS = jms.Topic("example shipments")

app = Application()


@app.listener(ORDERS)
async def ship(body: dict[str, Any], database: AsyncSession, context: jms.JMSContext) -> None:
    """Ship an order, and announce it. The message, the order's new state and the announcement are one transaction."""
    order = await database.get_one(Order, body["reference"])
    order.state = "shipped"
    await context.create_producer().send(SHIPMENTS, order.reference)


@app.listener(QUOTES)
async def quote(request: jms.Message, goods: str, context: jms.JMSContext) -> None:
    """Answer a request for a price."""
    if request.jms_reply_to is not None:
        producer = context.create_producer(jms_correlation_id=request.jms_message_id)
        await producer.send(request.jms_reply_to, {"goods": goods, "price": 5 * len(goods)})
