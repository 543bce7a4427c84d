"""What the backend and the worker store."""

from __future__ import annotations

import os

import sqlalchemy
from sqlalchemy import orm


class Base(orm.DeclarativeBase):
    """The tables of the example."""


class Order(Base):
    """An order, under the reference that the customer gave it."""

    __tablename__ = "example_flask_order"

    reference: orm.Mapped[str] = orm.mapped_column(primary_key=True)
    goods: orm.Mapped[str]
    express: orm.Mapped[bool]
    state: orm.Mapped[str] = orm.mapped_column(default="placed")


class CourierRide(Base):
    """A ride of the courier, for an order that is in a hurry."""

    __tablename__ = "example_flask_courier_ride"

    reference: orm.Mapped[str] = orm.mapped_column(sqlalchemy.ForeignKey(Order.reference), primary_key=True)


def database_url() -> sqlalchemy.URL:
    """Return where the database is, for SQLAlchemy."""
    return sqlalchemy.make_url(os.environ["JMSQL_URL"]).set(drivername="postgresql+psycopg")
