"""What goes wrong in the caller's own transaction is told as a JMS exception, and the rest is left to the caller."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import psycopg
import pytest
import sqlalchemy
from sqlalchemy import orm

import jmsql
from jmsql import JMSException, Queue, Session, TransactionRolledBackException
from jmsql.testing import receive_all
from tests.integration.client.failures.refusal import refused
from tests.integration.client.locked_tables import LIMITS, lock
from tests.integration.client.server import Server, with_parameters
from tests.slowness import scaled
from tests.texts import texts_of

QUEUE = Queue("orders")

Enlist = Callable[[str, ExitStack], object]


def sqlalchemy_connection(url: str, stack: ExitStack) -> sqlalchemy.Connection:
    engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1))
    stack.callback(engine.dispose)
    return stack.enter_context(engine.connect())


def sqlalchemy_session(url: str, stack: ExitStack) -> orm.Session:
    return stack.enter_context(orm.Session(sqlalchemy_connection(url, stack)))


def psycopg_connection(url: str, stack: ExitStack) -> psycopg.Connection:
    return stack.enter_context(psycopg.connect(url.replace("postgresql+psycopg://", "postgresql://", 1)))


TRANSACTIONS = pytest.mark.parametrize(
    "transaction", [sqlalchemy_connection, sqlalchemy_session, psycopg_connection], ids=lambda make: make.__name__
)


SEND = 0


def enlisted_calls(context: jmsql.JMSContext) -> list[Callable[[], object]]:
    return [
        lambda: context.create_producer().send(QUEUE, "text"),
        lambda: context.create_consumer(QUEUE).receive(timeout=0),
        lambda: list(context.create_browser(QUEUE)),
    ]


@TRANSACTIONS
@pytest.mark.parametrize("number", range(3), ids=["send", "receive", "browse"])
def test_enlisting_where_the_schema_is_missing(jmsql_clean_url: str, transaction: Enlist, number: int) -> None:
    with ExitStack() as stack:
        context = jmsql.enlist(transaction(jmsql_clean_url, stack), schema="nowhere")  # type: ignore[arg-type]
        refused(enlisted_calls(context)[number], JMSException, "42P01", "jmsql migrate")
        if number == SEND:
            refused(
                enlisted_calls(context)[number],
                TransactionRolledBackException,
                "25P02",
                "an earlier statement failed",
            )
        else:  # a look ends the transaction that it has begun
            refused(enlisted_calls(context)[number], JMSException, "42P01", "jmsql migrate")


@TRANSACTIONS
@pytest.mark.parametrize("number", range(3), ids=["send", "receive", "browse"])
def test_enlisting_in_a_connection_that_was_cut(
    jmsql_clean_url: str, server: Server, others: Session, transaction: Enlist, number: int
) -> None:
    with ExitStack() as stack:
        url = with_parameters(jmsql_clean_url, application_name="the-application")
        own = transaction(url, stack)
        context = jmsql.enlist(own)  # type: ignore[arg-type]
        context.create_producer().send(QUEUE, "lost")
        assert server.terminate("the-application") == 1
        with pytest.raises(JMSException, match="connection") as failure:
            enlisted_calls(context)[number]()
        assert failure.value.error_code in {"57P01", "08006"}
        assert isinstance(failure.value.linked_exception, psycopg.Error)
        with pytest.raises(JMSException):
            enlisted_calls(context)[number]()

        if isinstance(own, sqlalchemy.Connection | orm.Session):
            own.rollback()  # as after any error; SQLAlchemy then connects again
            context.create_producer().send(QUEUE, "kept")
            own.commit()
            assert texts_of(receive_all(others.create_consumer(QUEUE))) == ["kept"]


@TRANSACTIONS
@pytest.mark.parametrize("number", range(3), ids=["send", "receive", "browse"])
def test_calls_in_a_closed_transaction_raise_a_jms_exception(
    jmsql_clean_url: str, transaction: Enlist, number: int
) -> None:
    with ExitStack() as stack:
        closed = transaction(jmsql_clean_url, stack)
        context = jmsql.enlist(closed)  # type: ignore[arg-type]
        if isinstance(closed, orm.Session):
            closed.connection().close()
        else:
            assert isinstance(closed, sqlalchemy.Connection | psycopg.Connection)
            closed.close()
        with pytest.raises(JMSException, match="closed") as failure:
            enlisted_calls(context)[number]()
        assert isinstance(failure.value.linked_exception, psycopg.Error | sqlalchemy.exc.SQLAlchemyError)


@TRANSACTIONS
@LIMITS
@pytest.mark.parametrize("number", range(3), ids=["send", "receive", "browse"])
def test_enlisted_statement_that_takes_too_long(
    jmsql_clean_url: str, blocker: psycopg.Connection, transaction: Enlist, limit: str, code: str, number: int
) -> None:
    with ExitStack() as stack:
        url = with_parameters(jmsql_clean_url, options=f"-c{limit}={scaled(50):.0f}ms")
        context = jmsql.enlist(transaction(url, stack))  # type: ignore[arg-type]
        lock(blocker, "message", "queue")
        refused(enlisted_calls(context)[number], JMSException, code, limit)


@pytest.mark.parametrize("nothing", [None, "postgresql://localhost", object()])
def test_another_object_than_a_transaction_is_not_joined(nothing: object) -> None:
    with pytest.raises(TypeError, match="psycopg 3 connection"):
        jmsql.enlist(nothing)  # type: ignore[arg-type]
