"""The administered object that connections are made from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from jmsql.client._async.connection.connection import Connection
from jmsql.client._async.connection.context import JMSContext
from jmsql.client._async.link.opening import default_url
from jmsql.client._async.session.session import Session
from jmsql.client.acknowledge_mode import AcknowledgeMode, mode_of_session, require_mode
from jmsql.concurrency import ASYNC
from jmsql.concurrency.tasks import async_resource, opened_in_thread
from jmsql.public_names import set_module
from jmsql.store.connections.database_url import url_in_environment
from jmsql.store.connections.engine import endpoint
from jmsql.store.schema.version import check_name
from jmsql.timings import Timings, complete

# A factory is a value: it connects to nothing, can be pickled and compared, and may be shared by threads and forked
# processes. So all that belongs to one connection is made in `_connect`, the embedded server's schema included.


AnyConnection = TypeVar("AnyConnection", bound=Connection)


@set_module("jmsql.asyncio")
@dataclass(frozen=True, slots=True)
class ConnectionFactory:
    """Makes connections to one database (JMS 1.1, chapter 4.2).

    Immutable, shareable between threads, and picklable.

    Args:
        url: Where the database is: ``postgresql://user@host/database``. None: the environment variable ``JMSQL_URL``,
            else the embedded server, whose schema is created if missing, unless ``JMSQL_EMBEDDED`` is ``off``.
        client_id: The client identifier of the connections; then no two are open at once.
        schema: The PostgreSQL schema of jmsql's tables.
        control_url: Where each client's control connection goes, if `url` leads through a pooler in transaction mode.
            None: with the URL of ``JMSQL_URL``, the environment variable ``JMSQL_CONTROL_URL``; else `url`.
        automatic_creation: Whether the first use of a queue or topic makes it. False: it has to be there, else it is
            an InvalidDestinationException. The schema can be told so too: `Administration.set_automatic_creation`.
        timings: The intervals and time-outs of its connections.
    """

    url: str | None = field(default=None, repr=False)
    client_id: str | None = field(default=None, kw_only=True)
    schema: str = field(default="jmsql", kw_only=True)
    control_url: str | None = field(default=None, kw_only=True, repr=False)
    automatic_creation: bool = field(default=True, kw_only=True)
    timings: Timings = field(default=Timings(), kw_only=True, repr=False)
    if ASYNC:
        max_connections: int = field(default=20, kw_only=True)
        """The most connections to PostgreSQL that the sessions of each of its connections use at a time. A session
        needs one while it has a transaction open, or asks the server."""

    @async_resource
    async def create_connection(self, user: str | None = None, password: str | None = None) -> Connection:
        """Connect to the database; the connection is stopped.

        Args:
            user: The PostgreSQL role to connect as; None: the URL's.
            password: Its password.

        Raises:
            JMSSecurityException: PostgreSQL refused the user or the password.
            ResourceAllocationException: The server cannot be reached, or has no connection left.
            InvalidClientIDException: Another connection has the factory's client identifier.
            JMSException: The schema is missing or of another version, the URL or the name of the schema is invalid, or
                an environment variable that should have a URL is empty.
        """
        return await self._connect(Connection, user, password)

    @async_resource
    async def create_context(
        self,
        user: str | AcknowledgeMode | None = None,
        password: str | None = None,
        *,
        session_mode: AcknowledgeMode = AcknowledgeMode.AUTO,
    ) -> JMSContext:
        """Connect to the database and make a session, as one object.

        Args:
            user: The PostgreSQL role to connect as; None: the URL's. Or, as in JMS 2.0, the session mode alone.
            password: Its password.
            session_mode: How the session acknowledges messages; TRANSACTED for one with transactions.

        Raises:
            JMSException: As `create_connection`; or the session mode is not an `AcknowledgeMode`, or there are two.
        """
        if isinstance(user, AcknowledgeMode):
            user, session_mode = None, mode_of_session(user, session_mode)
        mode = require_mode(session_mode)
        connection = await self.create_connection(user, password)
        try:
            return JMSContext(connection.open_session(Session, mode), connection)
        except BaseException:
            await connection.close()
            raise

    async def _connect(self, kind: type[AnyConnection], user: str | None, password: str | None) -> AnyConnection:
        check_name(self.schema)
        for name, given in (("user", user), ("password", password)):
            if given is not None and not isinstance(given, str):
                raise TypeError(f"Expected a text or None for {name}, got {type(given).__name__}.")
        timings = complete(self.timings)
        url = self.url
        if url is None:
            # The embedded server, which it may start, is nobody's to stop.
            url = await opened_in_thread(lambda _: None, default_url, self.schema)
        sessions = endpoint(url, user, password, timings)
        control_url = self._control_url()
        opened = await kind.open(
            sessions,
            sessions if control_url is None else endpoint(control_url, user, password, timings),
            self.schema,
            self.client_id,
            automatic_creation=self.automatic_creation,
            timings=timings,
        )
        if ASYNC:
            opened.limit_connections(self.max_connections)
        return opened

    def _control_url(self) -> str | None:
        if self.control_url is None and self.url in {None, url_in_environment("JMSQL_URL")}:
            return url_in_environment("JMSQL_CONTROL_URL")
        return self.control_url
