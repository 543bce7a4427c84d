"""The backend: an order is stored, and announced on a topic, in one transaction."""

from __future__ import annotations

import sqlalchemy
from flask import Flask, abort, request
from sqlalchemy import orm
from sqlalchemy.exc import IntegrityError

import jmsql
from examples.flask_orders.tables import Base, CourierRide, Order, database_url

ORDERS_PLACED = jmsql.Topic("example orders placed")


def create_app() -> Flask:
    """Connect, make the tables, and return the application."""
    app = Flask(__name__)
    engine = sqlalchemy.create_engine(database_url())
    Base.metadata.create_all(engine)
    sessions = orm.sessionmaker(engine)

    @app.post("/orders")
    def place() -> tuple[dict[str, object], int]:
        """Store an order and announce it. A reference that was used before is refused, and nothing is announced."""
        order = Order(
            reference=request.json["reference"], goods=request.json["goods"], express=request.json.get("express", False)
        )
        try:
            with sessions.begin() as database:
                properties = {"express": order.express}
                jmsql.send(database, ORDERS_PLACED, {"reference": order.reference}, properties=properties)
                database.add(order)
        except IntegrityError:
            abort(409, f"There is an order {order.reference!r} already.")
        return {"reference": request.json["reference"], "state": "placed"}, 201

    @app.get("/orders/<reference>")
    def show(reference: str) -> dict[str, object]:
        """Tell how far an order is, and whether the courier has it."""
        with sessions() as database:
            order = database.get(Order, reference)
            if order is None:
                abort(404, f"There is no order {reference!r}.")
            courier = database.get(CourierRide, reference) is not None
            return {"reference": order.reference, "state": order.state, "courier": courier}

    return app
