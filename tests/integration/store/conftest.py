"""The store, through as many connections as a test needs."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeVar

import psycopg
import pytest

from jmsql.store.destinations import lookup
from jmsql.store.receiving.late_messages import ScanStart
from jmsql.store.rows.message_rows import ClaimedRow, LockedRow, MessageKey, MessageRow, OutgoingMessage
from jmsql.store.sending.send import send as store_send
from jmsql.store.statement import Query, Steps
from jmsql.store.wire._sync.runner import PsycopgRunner, Runner

T = TypeVar("T")

FROM_THE_FRONT = ScanStart([0] * 10)


@dataclass(frozen=True)
class Client:
    """One connection to the database, and the store seen through it."""

    connection: psycopg.Connection[Any]
    runner: Runner

    def run(self, work: Query[T] | Steps[T]) -> T:
        """Run statements."""
        return self.runner.run(work)

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement."""
        return self.connection.execute(statement.encode()).fetchall()


OpenClient = Callable[..., Client]


@pytest.fixture
def open_client(jmsql_clean_url: str) -> Iterator[OpenClient]:
    """Open a client, each statement of which commits, unless it is asked for transactions."""
    with ExitStack() as stack:

        def open_one(*, transactions: bool = False) -> Client:
            connection = stack.enter_context(psycopg.connect(jmsql_clean_url, autocommit=not transactions))
            return Client(connection, PsycopgRunner(connection, "jmsql"))

        yield open_one


@pytest.fixture
def client(open_client: OpenClient) -> Client:
    """A client, each statement of which commits. There is a queue "orders"."""
    client = open_client()
    client.run(lookup.queue_id("orders"))
    return client


@pytest.fixture
def queue_id(client: Client) -> int:
    """The number of the queue "orders"."""
    return client.run(lookup.queue_id("orders"))


def text_message(body: str, *, queue: str = "orders", expiration: int | None = None) -> OutgoingMessage:
    """Make a message to send."""
    columns: dict[str, Any] = dict.fromkeys(OutgoingMessage._fields)
    return OutgoingMessage(
        **columns
        | {
            "destination": queue,
            "inverse_priority": 5,
            "jms_message_id": str(uuid.uuid4()),
            "jms_expiration": expiration,
            "jms_delivery_mode": 2,
            "message_type": "TextMessage",
            "text_body": body,
        }
    )


def send(client: Client, *bodies: str, expiration: int | None = None) -> None:
    """Send messages to the queue "orders"."""
    client.run(store_send([text_message(body, expiration=expiration) for body in bodies]))


def bodies(rows: Sequence[MessageRow]) -> list[str | None]:
    """Return the texts of messages."""
    return [row.text_body for row in rows]


def as_locked(rows: Sequence[MessageRow]) -> list[LockedRow]:
    """Return messages, all of which are locked."""
    found = [row for row in rows if isinstance(row, LockedRow)]
    assert found == rows
    return found


def as_claimed(rows: Sequence[MessageRow]) -> list[ClaimedRow]:
    """Return messages, all of which are claimed."""
    found = [row for row in rows if isinstance(row, ClaimedRow)]
    assert found == rows
    return found


def key(queue_id: int, row: MessageRow) -> MessageKey:
    """Return a message's key."""
    return MessageKey(queue_id, row.inverse_priority, row.sequence)
