"""The backend: an order is stored, and the worker is told of it, in one transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

import jmsql.asyncio as jms
from examples.fastapi_orders.tables import Base, Order, database_url

ORDERS = jms.Queue("example orders")


class NewOrder(BaseModel):
    """What a customer sends."""

    reference: str
    goods: str


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Connect, and make the tables."""
    engine = create_async_engine(database_url())
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    app.state.sessions = async_sessionmaker(engine)
    yield
    await engine.dispose()


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=201)
async def place(order: NewOrder, request: Request) -> dict[str, str]:
    """Store an order and send its message. A reference that was used before is refused, and nothing is sent."""
    try:
        async with request.app.state.sessions.begin() as database:
            producer = jms.enlist(database).create_producer()
            await producer.send(ORDERS, {"reference": order.reference})
            database.add(Order(reference=order.reference, goods=order.goods))
    except IntegrityError as error:
        raise HTTPException(409, f"There is an order {order.reference!r} already.") from error
    return {"reference": order.reference, "state": "placed"}


@app.get("/orders/{reference}")
async def show(reference: str, request: Request) -> dict[str, str]:
    """Tell how far an order is."""
    async with request.app.state.sessions() as database:
        order = await database.get(Order, reference)
    if order is None:
        raise HTTPException(404, f"There is no order {reference!r}.")
    return {"reference": order.reference, "state": order.state}
