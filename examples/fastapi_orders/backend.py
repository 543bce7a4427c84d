"""The backend: an order is stored, and its message sent, in one transaction. It also ships what was ordered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

import jmsql.asyncio as jms
from examples.fastapi_orders import messaging
from examples.fastapi_orders.messaging import ORDERS, QUOTES, SHIPMENTS, PlacedOrder
from examples.fastapi_orders.tables import Base, Order, database_url


class NewOrder(BaseModel):
    """What a customer sends."""

    reference: str
    goods: str


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Connect, make the tables, and handle messages for as long as the application runs."""
    engine = create_async_engine(database_url())
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    app.state.sessions = async_sessionmaker(engine)
    async with jms.ConnectionFactory().create_connection() as connection:
        await connection.start()
        app.state.connection, app.state.quotes = connection, connection.requestor(QUOTES)
        async with messaging.app.running(concurrency=4):
            yield
    await engine.dispose()


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=201)
async def place(order: NewOrder, request: Request) -> dict[str, str]:
    """Store an order and send its message. A reference that was used before is refused, and nothing is sent."""
    try:
        async with request.app.state.sessions.begin() as database:
            await jms.send(database, ORDERS, PlacedOrder(reference=order.reference))
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


@app.get("/quotes/{goods}")
async def ask(goods: str, request: Request) -> dict[str, Any] | None:
    """Ask for a price: send a request, and wait for its reply."""
    try:
        reply: jms.Message = await request.app.state.quotes.request(goods, timeout=5)
    except TimeoutError as error:
        raise HTTPException(504, "No quote has come in time.") from error
    return reply.get_body(dict)


@app.get("/shipments")
async def shipments(request: Request) -> StreamingResponse:
    """Tell of each shipment as a server-sent event, for as long as the customer listens."""
    connection: jms.Connection = request.app.state.connection

    async def events() -> AsyncIterator[str]:
        async with connection.create_session() as session, session.create_consumer(SHIPMENTS) as consumer:
            yield ": what is shipped from now on\n\n"
            async for message in consumer:
                yield f"data: {message.get_body(str)}\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")
