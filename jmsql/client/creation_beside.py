"""The first send of an application's transaction to a queue makes the queue on a connection beside it.

Made in the transaction, the queue's name would hold up every other sender to it until the transaction ends, and two
transactions that make two queues in opposite order would deadlock. A queue that a rollback leaves over is harmless.
"""

from __future__ import annotations

from collections.abc import Hashable
from concurrent.futures import Future
from threading import Thread
from typing import TYPE_CHECKING, NamedTuple

import psycopg
from psycopg.conninfo import make_conninfo

from jmsql.concurrency.threads import start_thread
from jmsql.exceptions import InvalidDestinationException, JMSException, JMSSecurityException
from jmsql.logs import contained_logger
from jmsql.store.connections.engine import connect
from jmsql.store.control.server import find_database
from jmsql.store.destinations.lookup import assume_role, queue_id
from jmsql.store.lock_waits import limit_lock_waits
from jmsql.store.statement import Steps, in_transaction
from jmsql.store.wire._sync.runner import PsycopgRunner

if TYPE_CHECKING:
    from sqlalchemy import URL

logger = contained_logger("jmsql")

_CONNECT_TIMEOUT = 3
"""Seconds. The application waits with its transaction open."""


# The connection beside it is short and its own: the application's pool may have a single connection, which the caller
# holds. It connects with the caller's parameters and password, assumes the caller's role, and checks that it has come
# to the same database (`find_database`), since the same parameters may lead elsewhere.
#
# The thread outlives the caller's patience. It then makes the queue a little later, which does no harm, or fails
# unnoticed; the caller makes the queue in its own transaction, as it would without a second connection.


class Place(NamedTuple):
    """The database of a transaction, and its role there.

    Args:
        conninfo: The parameters of a connection as libpq reads them, with the password.
        schema: The plain name of the schema.
        database: The database, by `find_database`.
        role: The role that the transaction works as.
    """

    conninfo: str
    schema: str
    database: tuple[Hashable, ...]
    role: str


def conninfo_of(connection: object) -> str | None:
    """Return the parameters for the server of a psycopg connection; None: it is another driver's."""
    if not isinstance(connection, psycopg.Connection | psycopg.AsyncConnection):
        return None
    return make_conninfo(connection.info.dsn, password=connection.info.password or None)


def conninfo_of_url(url: URL) -> str:
    """Return where a URL of SQLAlchemy's leads, as libpq reads it. Each driver has other parameters beside that."""
    place = {name: value for name, value in url.query.items() if name in {"host", "port", "user", "password"}}
    return url.set(drivername="postgresql", query=place).render_as_string(hide_password=False)


def make_queue_beside(place: Place, name: str, lock_timeout: float) -> bool:
    """Make a queue on a connection of its own, unless it is there by then.

    A pooler may lend that connection only once the caller's transaction has ended. So a thread makes the queue, and the
    caller does not wait for it for long.

    Args:
        place: The database.
        name: The queue's name.
        lock_timeout: For how many seconds to wait for a lock.

    Returns:
        False if no connection can be had, a lock, or a thread.

    Raises:
        InvalidDestinationException: The schema's configuration does not want the queue to be made.
        JMSSecurityException: The role may not make it.
    """
    made: Future[None] = Future()

    def make() -> None:
        try:
            _make(place, name, lock_timeout)
        except BaseException as error:  # noqa: BLE001 - raised to the caller
            made.set_exception(error)
        else:
            made.set_result(None)

    try:
        start_thread(Thread(target=make, name="jmsql-making-a-queue", daemon=True))
        made.result(_CONNECT_TIMEOUT + lock_timeout)
    except (InvalidDestinationException, JMSSecurityException):
        raise
    except (JMSException, psycopg.Error, TimeoutError, OSError) as error:
        logger.info("The queue %r is made in the application's transaction: %s", name, error)
        return False
    return True


def _make(place: Place, name: str, lock_timeout: float) -> None:
    parameters = make_conninfo(place.conninfo, application_name="jmsql", connect_timeout=_CONNECT_TIMEOUT)
    with connect(parameters, autocommit=True) as connection:
        runner = PsycopgRunner(connection, place.schema, prepares=False)
        if runner.run(find_database) != place.database:
            raise JMSException("another connection leads to another server or database")
        runner.run(in_transaction(_steps(place.role, name, lock_timeout)))


def _steps(role: str, name: str, lock_timeout: float) -> Steps[None]:
    yield from limit_lock_waits(lock_timeout)
    try:
        yield from assume_role(role)
    except JMSSecurityException as error:
        raise JMSException(str(error)) from error
    yield from queue_id(name)
