"""What the backend receives: orders, which it ships, and requests for a price."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession

import jmsql.asyncio as jms
from examples.fastapi_orders.tables import Order
from jmsql.worker import Application, HandlerCall, Reject

ORDERS = jms.Queue("example orders")
QUOTES = jms.Queue("example quotes")
SHIPMENTS = jms.Topic("example shipments")


class PlacedOrder(BaseModel):
    """The body of the message about an order."""

    reference: str


class PriceList:
    """What things cost."""

    def price(self, goods: str) -> int:
        """Return the price."""
        return 5 * len(goods)


@asynccontextmanager
async def around(call: HandlerCall) -> AsyncIterator[None]:
    """Give each handler what it asks for beside its message; a client of a web service would be opened here."""
    call.provide(PriceList, PriceList())
    yield


app = Application(around=around, provides=[PriceList])


@app.listener(ORDERS, timeout=30)
async def ship(placed: PlacedOrder, database: AsyncSession, context: jms.JMSContext) -> None:
    """Ship an order, and announce it. The message, the order's new state and the announcement are one transaction."""
    order = await database.get(Order, placed.reference)
    if order is None:
        raise Reject(f"There is no order {placed.reference!r}.")  # it is a dead letter, and not tried again
    order.state = "shipped"
    await context.create_producer().send(SHIPMENTS, order.reference)


@app.listener(QUOTES)
async def quote(goods: str, prices: PriceList) -> dict[str, object]:
    """Answer a request for a price: what is returned is the reply."""
    return {"goods": goods, "price": prices.price(goods)}
